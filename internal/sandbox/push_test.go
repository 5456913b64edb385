package sandbox_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/SherClockHolmes/webpush-go"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2"
	oauthjwt "golang.org/x/oauth2/jwt"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// fcmBearer gets an access token as a client library does.
func fcmBearer(t *testing.T, s *sandbox.Server) string {
	t.Helper()
	raw, err := s.FCMCredentials()
	if err != nil {
		t.Fatal(err)
	}
	var account struct {
		Email    string `json:"client_email"`
		Key      string `json:"private_key"`
		KeyID    string `json:"private_key_id"`
		TokenURL string `json:"token_uri"`
	}
	if err := json.Unmarshal(raw, &account); err != nil {
		t.Fatal(err)
	}
	token, err := fcmToken(t, account.Email, account.Key, account.KeyID, account.TokenURL)
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + token.AccessToken
}

func fcmToken(t *testing.T, email, key, keyID, url string) (*oauth2.Token, error) {
	t.Helper()
	cfg := oauthjwt.Config{
		Email: email, PrivateKey: []byte(key), PrivateKeyID: keyID, TokenURL: url,
		Scopes: []string{"https://www.googleapis.com/auth/firebase.messaging"},
	}
	return cfg.TokenSource(t.Context()).Token()
}

func TestFCMTakesATokenOfItsOwnEndpoint(t *testing.T) {
	s := start(t, sandbox.Config{})
	bearer := fcmBearer(t, s)
	target := s.HTTPURL() + "/v1/projects/sandbox/messages:send"
	body := `{"message":{"token":"device-1","notification":{"title":"Deploy failed","body":"3 of 5 pods"},"data":{"a":"1"}}}`
	a := send(t, http.MethodPost, target, body, "Authorization", bearer)
	if name, _ := a.json(t)["name"].(string); a.status != 200 || !strings.HasPrefix(name, "projects/sandbox/messages/") {
		t.Errorf("answered %d %s", a.status, a.body)
	}
	if m := last(t, s); m.To != "device-1" || m.Title != "Deploy failed" || m.Text != "3 of 5 pods" || m.Channel != "push" {
		t.Errorf("recorded %+v", m)
	}
	for name, tt := range map[string]struct {
		body, bearer string
		status       int
		want         string
	}{
		"without a token":   {body, "", 401, "UNAUTHENTICATED"},
		"with a made-up":    {body, "Bearer ya29.other", 401, "UNAUTHENTICATED"},
		"with a stale":      {body, "Bearer ya29.sandbox-1000-x", 401, "UNAUTHENTICATED"},
		"no target":         {`{"message":{"data":{"a":"1"}}}`, bearer, 400, "INVALID_ARGUMENT"},
		"data of numbers":   {`{"message":{"token":"x","data":{"a":1}}}`, bearer, 400, "INVALID_ARGUMENT"},
		"a ttl of a year":   {`{"message":{"token":"x","android":{"ttl":"31536000s"}}}`, bearer, 400, "INVALID_ARGUMENT"},
		"more than 4096 B":  {`{"message":{"token":"x","data":{"a":"` + strings.Repeat("a", 4096) + `"}}}`, bearer, 400, "INVALID_ARGUMENT"},
		"what is no object": {`[]`, bearer, 400, "INVALID_ARGUMENT"},
	} {
		t.Run(name, func(t *testing.T) {
			if a := send(t, http.MethodPost, target, tt.body, "Authorization", tt.bearer); a.status != tt.status || !strings.Contains(a.body, tt.want) {
				t.Errorf("answered %d %s", a.status, a.body)
			}
		})
	}
}

func TestTheTokenEndpointRefusesWhatIsNotSignedByTheKey(t *testing.T) {
	t.Parallel()
	s, other := start(t, sandbox.Config{}), start(t, sandbox.Config{})
	var mine, theirs struct {
		Key   string `json:"private_key"`
		KeyID string `json:"private_key_id"`
	}
	for server, v := range map[*sandbox.Server]any{s: &mine, other: &theirs} {
		raw, err := server.FCMCredentials()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, v); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fcmToken(t, "a@b", theirs.Key, mine.KeyID, s.HTTPURL()+"/token"); err == nil || !strings.Contains(err.Error(), "invalid_grant") {
		t.Errorf("a forged assertion: %v", err)
	}
	if _, err := fcmToken(t, "a@b", theirs.Key, theirs.KeyID, s.HTTPURL()+"/token"); err != nil {
		t.Errorf("credentials that a person brought: %v", err)
	}
	if a := send(t, http.MethodPost, s.HTTPURL()+"/token", "grant_type=password", "Content-Type", "application/x-www-form-urlencoded"); a.status != 400 {
		t.Errorf("another grant: %d", a.status)
	}
}

func h2c(t *testing.T) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func apnsBearer(t *testing.T, s *sandbox.Server, issued time.Time, change func(*jwt.Token)) string {
	t.Helper()
	p8, keyID, err := s.APNsKey()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(p8)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": sandbox.APNsTeamID, "iat": issued.Unix()})
	token.Header["kid"] = keyID
	if change != nil {
		change(token)
	}
	signed, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return "bearer " + signed
}

func TestAPNsSpeaksHTTP2OnTheSamePort(t *testing.T) {
	t.Parallel()
	s, c := start(t, sandbox.Config{}), h2c(t)
	id := "0193a3c0-0000-7000-8000-000000000001"
	a, err := do(t, c, http.MethodPost, s.HTTPURL()+"/3/device/abc123", `{"aps":{"alert":{"title":"T","body":"B"}}}`,
		"Authorization", apnsBearer(t, s, time.Now(), nil), "apns-topic", "com.example.app", "apns-id", id)
	if err != nil {
		t.Fatal(err)
	}
	if a.status != 200 || a.header.Get("apns-id") != id {
		t.Errorf("answered %d %v %s", a.status, a.header, a.body)
	}
	m := last(t, s)
	if m.To != "abc123" || m.Title != "T" || m.Text != "B" || m.Headers["Protocol"] != "HTTP/2.0" || m.Headers["apns-topic"] != "com.example.app" {
		t.Errorf("recorded %+v", m)
	}
	setFaults(t, s, sandbox.Rule{Provider: "apns", To: "abc123", Answer: sandbox.RuleAnswer{Drop: sandbox.DropAfter}})
	if a, err := do(t, c, http.MethodPost, s.HTTPURL()+"/3/device/abc123", `{"aps":{}}`,
		"Authorization", apnsBearer(t, s, time.Now(), nil), "apns-topic", "com.example.app"); err == nil {
		t.Errorf("a dropped stream answered %d", a.status)
	}
}

func TestAPNsRefusesWhatAppleRefuses(t *testing.T) {
	s := start(t, sandbox.Config{})
	good := apnsBearer(t, s, time.Now(), nil)
	for _, tt := range []struct {
		name, body, bearer string
		status             int
		reason             string
		headers            []string
	}{
		{"no token", `{}`, "", 403, "MissingProviderToken", nil},
		{"a token that is none", `{}`, "bearer x.y.z", 403, "InvalidProviderToken", nil},
		{"a forged token", `{}`, good[:len(good)-8] + "AAAAAAAA", 403, "InvalidProviderToken", nil},
		{"a token without key id", `{}`, apnsBearer(t, s, time.Now(), func(j *jwt.Token) { delete(j.Header, "kid") }), 403, "InvalidProviderToken", nil},
		{"an old token", `{}`, apnsBearer(t, s, time.Now().Add(-2*time.Hour), nil), 403, "ExpiredProviderToken", nil},
		{"no topic", `{}`, good, 400, "MissingTopic", []string{"apns-topic", ""}},
		{"no payload", ``, good, 400, "PayloadEmpty", nil},
		{"4097 bytes", `{"a":"` + strings.Repeat("a", 4097-8) + `"}`, good, 413, "PayloadTooLarge", nil},
		{"a priority of 7", `{}`, good, 400, "BadPriority", []string{"apns-priority", "7"}},
		{"an expiration in words", `{}`, good, 400, "BadExpirationDate", []string{"apns-expiration", "soon"}},
		{"an id that is no uuid", `{}`, good, 400, "BadMessageId", []string{"apns-id", "7"}},
		{"a long collapse id", `{}`, good, 400, "BadCollapseId", []string{"apns-collapse-id", strings.Repeat("x", 65)}},
		{"a push type of fantasy", `{}`, good, 400, "InvalidPushType", []string{"apns-push-type", "pigeon"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			headers := append([]string{"Authorization", tt.bearer, "apns-topic", "com.example.app"}, tt.headers...)
			a := send(t, http.MethodPost, s.HTTPURL()+"/3/device/abc", tt.body, headers...)
			if a.status != tt.status || a.json(t)["reason"] != tt.reason {
				t.Errorf("answered %d %s, want %d %s", a.status, a.body, tt.status, tt.reason)
			}
		})
	}
}

// pushTo sends a web push through an independent library.
func pushTo(t *testing.T, s *sandbox.Server, name, text, topic string) *http.Response {
	t.Helper()
	public, private, err := s.VAPIDKeys()
	if err != nil {
		t.Fatal(err)
	}
	endpoint, p256dh, auth := s.NewSubscription(name)
	resp, err := webpush.SendNotificationWithContext(t.Context(), []byte(text),
		&webpush.Subscription{Endpoint: endpoint, Keys: webpush.Keys{P256dh: p256dh, Auth: auth}},
		&webpush.Options{Subscriber: "ops@example.com", VAPIDPublicKey: public, VAPIDPrivateKey: private, TTL: 60, Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestWebPushIsDecryptedWithTheKeysTheSandboxGaveOut(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	resp := pushTo(t, s, "ana", `{"title":"T","body":"grüße"}`, "t1")
	if resp.StatusCode != http.StatusCreated || !strings.HasPrefix(resp.Header.Get("Location"), s.HTTPURL()) {
		t.Errorf("answered %d %v", resp.StatusCode, resp.Header)
	}
	m := last(t, s)
	if m.Title != "T" || m.Text != "grüße" || m.Headers["TTL"] != "60" || m.Headers["Topic"] != "t1" || m.Headers["Sandbox-Note"] != "" {
		t.Errorf("recorded %+v", m)
	}
	again := start(t, sandbox.Config{})
	_, key1, auth1 := s.NewSubscription("ana")
	_, key2, auth2 := again.NewSubscription("ana")
	_, key3, _ := s.NewSubscription("ben")
	if key1 != key2 || auth1 != auth2 || key1 == key3 {
		t.Error("keys must depend on the name and on nothing else")
	}
}

func TestWebPushRefusesWhatPushServicesRefuse(t *testing.T) {
	s := start(t, sandbox.Config{})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	origin := s.HTTPURL()
	good := vapid(t, key, origin, time.Hour, "mailto:a@b.example")
	for _, tt := range []struct {
		name, ttl, vapid string
		status           int
		errno            float64
		headers          []string
	}{
		{"nothing wrong", "60", good, 201, 0, nil},
		{"no TTL", "", good, 400, 111, nil},
		{"a TTL of a year", "31536000", good, 400, 112, nil},
		{"a long topic", "60", good, 400, 113, []string{"Topic", strings.Repeat("x", 33)}},
		{"no authorization", "60", "", 401, 109, nil},
		{"a token for another origin", "60", vapid(t, key, "http://push.example", time.Hour, "mailto:a@b.example"), 401, 109, nil},
		{"a token for an endpoint", "60", vapid(t, key, origin+"/webpush/ana", time.Hour, "mailto:a@b.example"), 401, 109, nil},
		{"a token for an origin whose host was replaced", "60", vapid(t, key, "https://push.example", time.Hour, "mailto:a@b.example"), 201, 0, nil},
		{"a token for two days", "60", vapid(t, key, origin, 48*time.Hour, "mailto:a@b.example"), 401, 109, nil},
		{"a token that has ended", "60", vapid(t, key, origin, -time.Minute, "mailto:a@b.example"), 401, 109, nil},
		{"a subject that names nobody", "60", vapid(t, key, origin, time.Hour, "me"), 401, 109, nil},
		{"a doubled mailto", "60", vapid(t, key, origin, time.Hour, "mailto:mailto:a@b.example"), 401, 109, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			headers := append([]string{"TTL", tt.ttl, "Authorization", tt.vapid}, tt.headers...)
			a := send(t, http.MethodPost, s.HTTPURL()+"/webpush/ana", "", headers...)
			if a.status != tt.status || (tt.errno != 0 && a.json(t)["errno"] != tt.errno) {
				t.Errorf("answered %d %s, want %d %v", a.status, a.body, tt.status, tt.errno)
			}
		})
	}
	if a := send(t, http.MethodPost, s.HTTPURL()+"/webpush/ana", "plain", "TTL", "60", "Authorization", good); a.status != 400 || a.json(t)["errno"] != 110.0 {
		t.Errorf("an unencrypted body: %d %s", a.status, a.body)
	}
	if a := send(t, http.MethodPost, s.HTTPURL()+"/fcm/send/abc", "", "TTL", "60", "Authorization", good); a.status != 201 || !strings.HasSuffix(last(t, s).To, "/fcm/send/abc") {
		t.Errorf("an endpoint of another path: %d %s", a.status, a.body)
	}
}
