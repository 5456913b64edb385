package sms

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/channels/twilio"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	accountSID = "AC0123456789abcdef0123456789abcdef"
	serviceSID = "MG0123456789abcdef0123456789abcdef"
	keySID     = "SK0123456789abcdef0123456789abcdef"
	authToken  = "e5c1f0token"
	messageSID = "SM0123456789abcdef0123456789abcdef"
	ana        = "+14155550100"
)

func config(baseURL string) Config {
	return Config{
		Account: twilio.Account{AccountSID: accountSID, AuthToken: secret.New(authToken), BaseURL: baseURL},
		From:    "+15005550006",
	}
}

func provider(t *testing.T, cfg Config) *Provider {
	t.Helper()
	p, err := New("twilio-main", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func message(string) *channels.Message {
	return &channels.Message{
		Key:       uuid.MustParse("0193e7a2-0000-7000-8000-000000000001"),
		To:        notify.Target{Phone: ana},
		Content:   notify.Content{Title: "Deploy failed", Body: "api: 3 of 5 pods are down"},
		ExpiresAt: time.Now().Add(time.Hour),
	}
}

// accept answers as Twilio does: with the number and the text in it.
func accept(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"sid":"`+messageSID+`","status":"queued","error_code":null,"to":"`+ana+
		`","body":"Deploy failed\napi: 3 of 5 pods are down","num_segments":"1","account_sid":"`+accountSID+`"}`)
}

func TestTwilioPassesTheSuite(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		New:     func(t *testing.T, baseURL string) channels.Provider { return provider(t, config(baseURL)) },
		Message: message,
		Accept:  accept,
		Want: channels.Result{
			Outcome: notify.Accepted, Status: notify.Sent, HTTPStatus: http.StatusCreated, MessageID: messageSID,
		},
		Table:     table(),
		Secrets:   []string{authToken, accountSID},
		Ambiguous: true, ServerErrors: map[int]notify.Outcome{503: notify.ProviderUnavailable},
	})
}

// received is what the server saw of one call.
type received struct {
	path, user, password, contentType string
	form                              url.Values
}

// capture sends m and returns the request it made.
func capture(t *testing.T, cfg Config, m *channels.Message, prepare func(*Provider)) received {
	t.Helper()
	var got received
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.path, got.contentType = r.Method+" "+r.URL.Path, r.Header.Get("Content-Type")
		got.user, got.password, _ = r.BasicAuth()
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		got.form = r.PostForm
		accept(w, r)
	}))
	defer srv.Close()
	cfg.BaseURL = srv.URL + cfg.BaseURL
	p := provider(t, cfg)
	if prepare != nil {
		prepare(p)
	}
	if r := p.Send(t.Context(), m); r.Outcome != notify.Accepted {
		t.Fatalf("result %+v", r)
	}
	return got
}

func TestSendPostsTheMessageAsAForm(t *testing.T) {
	now := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	m := message("")
	m.ExpiresAt = now.Add(90*time.Second + 900*time.Millisecond)
	got := capture(t, config(""), m, func(p *Provider) { p.now = func() time.Time { return now } })
	want := received{
		path: "POST /2010-04-01/Accounts/" + accountSID + "/Messages.json",
		user: accountSID, password: authToken, contentType: "application/x-www-form-urlencoded",
		form: url.Values{
			"To": {ana}, "From": {"+15005550006"}, "Body": {"Deploy failed\napi: 3 of 5 pods are down"},
			"ValidityPeriod": {"90"},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(received{})); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestSendUsesServiceKeyAndSmartEncoding(t *testing.T) {
	cfg := config("/twilio")
	cfg.Account = twilio.Account{
		AccountSID: accountSID, APIKeySID: keySID, APIKeySecret: secret.New("-key_secret/"), BaseURL: "/twilio",
	}
	cfg.From, cfg.MessagingServiceSID, cfg.SmartEncoded = "", serviceSID, true
	m := message("")
	m.Content.SMS = &notify.SMSContent{Body: "short & sweet"}
	m.ExpiresAt = time.Time{}
	got := capture(t, cfg, m, nil)
	want := received{
		path: "POST /twilio/2010-04-01/Accounts/" + accountSID + "/Messages.json",
		user: keySID, password: "-key_secret/", contentType: "application/x-www-form-urlencoded",
		form: url.Values{
			"To": {ana}, "MessagingServiceSid": {serviceSID}, "Body": {"short & sweet"},
			"SmartEncoded": {"true"}, "ValidityPeriod": {"36000"},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(received{})); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestSendAsksForStatusesWhereTheyCanBeChecked(t *testing.T) {
	const callback = "https://dispatcher.example.com/v1/receipts/twilio-main/status/ref"
	key := func(tokens ...secret.Value) Config {
		cfg := config("")
		cfg.AuthToken, cfg.APIKeySID, cfg.APIKeySecret, cfg.CallbackAuthTokens = secret.Value{}, keySID, secret.New("k3y"), tokens
		return cfg
	}
	for _, c := range []struct {
		name, callback string
		cfg            Config
		want           []string
	}{
		{"with a token", callback, config(""), []string{callback + "#rc=3&rp=ct,rt,5xx"}},
		{"with a key and a token for callbacks", callback, key(secret.New(authToken)), []string{callback + "#rc=3&rp=ct,rt,5xx"}},
		{"with a key alone", callback, key(), nil},
		{"without a public address", "", config(""), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := message("")
			m.Callback = c.callback
			if got := capture(t, c.cfg, m, nil).form["StatusCallback"]; !slices.Equal(got, c.want) {
				t.Errorf("status callback %q, want %q", got, c.want)
			}
		})
	}
}

func TestAnSMSCanBeSeenDelivered(t *testing.T) {
	p := provider(t, config(""))
	if i := p.Info(); i.MaxObservable != notify.Delivered || !i.Receipts {
		t.Errorf("info %+v", i)
	}
	_, err := p.ReadCallback(t.Context(), &channels.Callback{Path: "nowhere"})
	var refused *channels.CallbackError
	if !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, call := p.Poll(ctx, messageSID); r != (channels.Receipt{}) || call.Outcome != notify.NotAttempted {
		t.Errorf("receipt %+v, call %+v", r, call)
	}
}

func TestRegionAndEdgeOfTheEnvironmentDoNotMoveTheCall(t *testing.T) {
	t.Setenv("TWILIO_REGION", "ie1")
	t.Setenv("TWILIO_EDGE", "dublin")
	if got := capture(t, config(""), message(""), nil); got.user != accountSID {
		t.Errorf("user %q", got.user)
	}
}

func TestValidityEndsWithTheMessage(t *testing.T) {
	now := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		left time.Duration
		want int
		ok   bool
	}{
		{"over", 0, 0, false},
		{"long over", -time.Hour, 0, false},
		{"almost over", time.Millisecond, 1, true},
		{"a minute", time.Minute, 60, true},
		{"ten hours", 10 * time.Hour, 36000, true},
		{"more than Twilio allows", 24 * time.Hour, 36000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := provider(t, config(""))
			p.now = func() time.Time { return now }
			seconds, ok := p.validity(&channels.Message{ExpiresAt: now.Add(c.left)})
			if seconds != c.want || ok != c.ok {
				t.Errorf("validity = %d, %t, want %d, %t", seconds, ok, c.want, c.ok)
			}
		})
	}
}

func TestSendMakesNoCallForAnExpiredMessage(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a call was made") }))
	defer srv.Close()
	m := message("")
	m.ExpiresAt = time.Now().Add(-time.Second)
	if r := provider(t, config(srv.URL)).Send(t.Context(), m); r.Outcome != notify.Expired {
		t.Errorf("result %+v, want expired", r)
	}
}

func TestCheckPointsToTheTextThatIsWrong(t *testing.T) {
	long := strings.Repeat("é", 1601)
	for _, c := range []struct {
		name    string
		content notify.Content
		max     int
		field   string // empty: no error
	}{
		{"a text", notify.Content{Body: "hello"}, 0, ""},
		{"the longest text", notify.Content{Body: long[2:]}, 0, ""},
		{"no text", notify.Content{Email: &notify.EmailContent{HTML: "<p>"}}, 0, "/content/sms/body"},
		{"own text too long", notify.Content{Body: "hi", SMS: &notify.SMSContent{Body: long}}, 0, "/content/sms/body"},
		{"body too long", notify.Content{Title: "hi", Body: long[2:]}, 0, "/content/body"},
		{"title too long", notify.Content{Title: long}, 0, "/content/title"},
		{"as many segments as allowed", notify.Content{Body: strings.Repeat("a", 306)}, 2, ""},
		{"more segments than allowed", notify.Content{Body: strings.Repeat("a", 307)}, 2, "/content/body"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config("")
			cfg.MaxSegments = c.max
			err := provider(t, cfg).Check(&channels.Message{To: notify.Target{Phone: ana}, Content: c.content})
			if c.field == "" {
				if err != nil {
					t.Errorf("Check: %v", err)
				}
				return
			}
			var ce *channels.CheckError
			if !errors.As(err, &ce) || ce.Field != c.field {
				t.Errorf("Check: %v, want an error at %s", err, c.field)
			}
			if err != nil && strings.Contains(err.Error(), "éé") {
				t.Errorf("Check repeats the text: %v", err)
			}
		})
	}
}
