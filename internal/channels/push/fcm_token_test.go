package push

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// tokenServer is FCM with a token endpoint that a test scripts.
type tokenServer struct {
	*httptest.Server
	provider *FCM
	clock    *clock
	asked    atomic.Int64
	sent     atomic.Int64
	grant    http.HandlerFunc // before the first send; nil numbers the tokens
	answer   http.HandlerFunc // nil accepts
	bearers  chan string
}

func newTokenServer(t *testing.T) *tokenServer {
	t.Helper()
	s := &tokenServer{clock: newClock(), bearers: make(chan string, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		n := s.asked.Add(1)
		if s.grant != nil {
			s.grant(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":3600,"token_type":"Bearer"}`, n)
	})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		s.sent.Add(1)
		s.bearers <- strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if s.answer != nil {
			s.answer(w, r)
			return
		}
		acceptFCM(w, r)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	s.provider = newFCM(t, s.URL)
	s.provider.now, s.provider.tokens.now = s.clock.Now, s.clock.Now
	return s
}

func (s *tokenServer) send(ctx context.Context) channels.Result {
	return s.provider.Send(ctx, deviceMessage(ProviderFCM))
}

// wantSent sends and checks which token was used.
func (s *tokenServer) wantSent(t *testing.T, token string) {
	t.Helper()
	if r := s.send(t.Context()); r.Outcome != notify.Accepted {
		t.Fatalf("%+v", r)
	}
	if got := <-s.bearers; got != token {
		t.Errorf("sent with %s, want %s", got, token)
	}
}

func TestFCMTokenIsAskedForOnceByAll(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if r := s.send(t.Context()); r.Outcome != notify.Accepted {
				t.Errorf("%+v", r)
			}
		})
	}
	wg.Wait()
	if n := s.asked.Load(); n != 1 {
		t.Errorf("%d requests for a token, want 1", n)
	}
}

func TestFCMTokenIsAskedForBySignedAssertion(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	assertion := make(chan string, 1)
	s.grant = func(w http.ResponseWriter, r *http.Request) {
		if got := r.PostFormValue("grant_type"); got != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
			t.Errorf("grant type %q", got)
		}
		assertion <- r.PostFormValue("assertion")
		grantToken(w, r)
	}
	s.wantSent(t, fcmAccess)
	claims := jwt.MapClaims{}
	token, err := jwt.ParseWithClaims(<-assertion, claims, func(*jwt.Token) (any, error) { return &rsaKey().PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithAudience(s.URL+"/token"), jwt.WithExpirationRequired(),
		jwt.WithIssuer("dispatcher@demo-project.iam.gserviceaccount.com"))
	if err != nil {
		t.Fatal(err)
	}
	if token.Header["kid"] != "key-1" || claims["scope"] != fcmScope {
		t.Errorf("key id %v, scope %v", token.Header["kid"], claims["scope"])
	}
}

func TestFCMTokenIsRenewedEarlyWithoutASendWaiting(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	s.wantSent(t, "token-1")
	s.clock.advance(54 * time.Minute)
	s.wantSent(t, "token-1")
	if n := s.asked.Load(); n != 1 {
		t.Fatalf("%d requests for a token before it is time", n)
	}

	asked, release := make(chan bool), make(chan bool)
	s.grant = func(w http.ResponseWriter, r *http.Request) {
		asked <- true
		<-release
		grantToken(w, r)
	}
	s.clock.advance(2 * time.Minute)
	s.wantSent(t, "token-1") // while the endpoint has not answered yet
	<-asked
	waiter := s.provider.tokens.fetch(t.Context()) // joins the request
	close(release)
	if res := <-waiter; res.Err != nil || !res.Shared {
		t.Fatalf("%+v", res)
	}
	s.wantSent(t, fcmAccess)
}

func TestFCMTokenThatCannotBeRenewedEarlyServesToItsEnd(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	s.wantSent(t, "token-1")
	asked := make(chan bool, 10)
	s.grant = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		asked <- true
	}
	s.clock.advance(56 * time.Minute)
	s.wantSent(t, "token-1")
	<-asked
	s.wantSent(t, "token-1")
	s.wantSent(t, "token-1")
	if n := s.asked.Load(); n != 2 {
		t.Errorf("%d requests for a token, want 2: the next only after a pause", n)
	}
	s.clock.advance(4 * time.Minute)
	if r := s.send(t.Context()); r.Outcome != notify.ProviderUnavailable {
		t.Errorf("with a token past its end: %+v", r)
	}
	s.grant = nil
	if r := s.send(t.Context()); r.Outcome != notify.Accepted {
		t.Errorf("after the endpoint came back: %+v", r)
	}
}

func TestFCMTokenFailureSendsNothing(t *testing.T) {
	t.Parallel()
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	cases := []struct {
		name       string
		grant      http.HandlerFunc
		want       notify.Outcome
		code       string
		retryAfter time.Duration
	}{
		{"invalid_grant", answer(400, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`), notify.AccountRejected, "invalid_grant", 7 * time.Second},
		{"invalid_client", answer(401, `{"error":"invalid_client"}`), notify.AccountRejected, "invalid_client", 7 * time.Second},
		{"404 page", answer(404, "<html>"), notify.AccountRejected, "", 7 * time.Second},
		{"429", answer(429, ""), notify.Throttled, "", 7 * time.Second},
		{"500", answer(500, "<html>"), notify.ProviderUnavailable, "", 7 * time.Second},
		{"503", answer(503, `{"error":"backend_error"}`), notify.ProviderUnavailable, "backend_error", 7 * time.Second},
		{"redirect", answer(307, ""), notify.ProviderUnavailable, "", 7 * time.Second},
		{"success that is no JSON", answer(200, "<html>"), notify.ProviderUnavailable, "", 0},
		{"success without a token", answer(200, `{}`), notify.ProviderUnavailable, "", 0},
		{"connection closed", abort, notify.ProviderUnavailable, "", 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newTokenServer(t)
			s.grant = c.grant
			r := s.send(t.Context())
			if r.Outcome != c.want || r.Code != c.code || r.RetryAfter != c.retryAfter {
				t.Errorf("%+v, want %s, code %q, retry after %v", r, c.want, c.code, c.retryAfter)
			}
			if !strings.HasPrefix(r.Detail, "token endpoint: ") {
				t.Errorf("detail %q", r.Detail)
			}
			if n := s.sent.Load(); n != 0 {
				t.Errorf("%d messages sent without a token", n)
			}
		})
	}
}

func TestFCMTokenEndpointThatHangsHoldsNobodyBeyondTheirContext(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	asked, release := make(chan bool), make(chan bool)
	s.grant = func(w http.ResponseWriter, r *http.Request) {
		asked <- true
		<-release
		grantToken(w, r)
	}
	first := make(chan channels.Result)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { first <- s.send(ctx) }()
	<-asked
	late, stop := context.WithDeadline(t.Context(), time.Now().Add(20*time.Millisecond))
	defer stop()
	if r := s.send(late); r.Outcome != notify.ProviderUnavailable {
		t.Errorf("past its deadline: %+v", r)
	}
	cancel()
	if r := <-first; r.Outcome != notify.NotAttempted {
		t.Errorf("canceled: %+v", r)
	}
	// The request that nobody waits for is still good for the next.
	close(release)
	s.wantSent(t, fcmAccess)
	if n := s.asked.Load(); n != 1 {
		t.Errorf("%d requests for a token, want 1", n)
	}
}

func TestFCMTokenIsNotAskedForByACanceledSend(t *testing.T) {
	t.Parallel()
	grant := newFCM(t, "http://fcm.test").tokens.grant
	synctest.Test(t, func(t *testing.T) {
		s := &tokenSource{grant: grant, now: time.Now, client: &http.Client{Transport: noTransport{t}}}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, r := s.get(ctx); r == nil || r.Outcome != notify.NotAttempted {
			t.Errorf("%+v", r)
		}
		synctest.Wait()
	})
}

// noTransport fails the test that uses it.
type noTransport struct{ t *testing.T }

func (n noTransport) RoundTrip(*http.Request) (*http.Response, error) {
	n.t.Error("a token was asked for")
	return nil, io.EOF
}

func TestFCMTokenThatFCMRefusesIsForgotten(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	s.wantSent(t, "token-1")
	refuse := func(body string) {
		s.answer = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, body)
		}
		if r := s.send(t.Context()); r.Outcome != notify.AccountRejected {
			t.Errorf("%+v", r)
		}
		<-s.bearers
		s.answer = nil
	}
	refuse(fcmError("UNAUTHENTICATED", "Auth error from APNS", fcmCode("THIRD_PARTY_AUTH_ERROR")))
	s.wantSent(t, "token-1") // it was not the token's fault
	refuse(fcmError("UNAUTHENTICATED", "Request had invalid authentication credentials."))
	s.wantSent(t, "token-2")
}
