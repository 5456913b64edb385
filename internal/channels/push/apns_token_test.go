package push

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func testProviderToken() *providerToken {
	return &providerToken{key: ecKey(), keyID: "ABC123DEFG", teamID: "DEF123GHIJ"}
}

func getToken(t *testing.T, p *providerToken, now time.Time) string {
	t.Helper()
	token, err := p.get(now)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestAPNsTokenIsSignedWithTheKeyForTheTeam(t *testing.T) {
	t.Parallel()
	now := time.Now()
	claims := jwt.MapClaims{}
	token, err := jwt.ParseWithClaims(getToken(t, testProviderToken(), now), claims,
		func(*jwt.Token) (any, error) { return &ecKey().PublicKey, nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer("DEF123GHIJ"))
	if err != nil {
		t.Fatal(err)
	}
	if token.Header["kid"] != "ABC123DEFG" {
		t.Errorf("key id %v", token.Header["kid"])
	}
	if at, err := claims.GetIssuedAt(); err != nil || at.Unix() != now.Unix() {
		t.Errorf("issued at %v, %v; want %v", at, err, now)
	}
}

func TestAPNsTokenIsKeptForFiftyMinutes(t *testing.T) {
	t.Parallel()
	p, start := testProviderToken(), time.Now()
	first := getToken(t, p, start)
	for _, age := range []time.Duration{time.Second, 20 * time.Minute, 50*time.Minute - 1} {
		if getToken(t, p, start.Add(age)) != first {
			t.Errorf("a new token after %v", age)
		}
	}
	if getToken(t, p, start.Add(50*time.Minute)) == first {
		t.Error("the same token after 50 min")
	}
}

func TestAPNsTokenOfTheFutureIsReplaced(t *testing.T) {
	t.Parallel()
	p, start := testProviderToken(), time.Now()
	first := getToken(t, p, start)
	if getToken(t, p, start.Add(-time.Minute)) == first {
		t.Error("the same token after the clock went back")
	}
}

func TestAPNsTokenThatAppleCallsExpired(t *testing.T) {
	t.Parallel()
	start := time.Now()
	t.Run("is replaced when it is 20 min old", func(t *testing.T) {
		t.Parallel()
		p := testProviderToken()
		first := getToken(t, p, start)
		later := start.Add(20 * time.Minute)
		if !p.refresh(first, later) {
			t.Error("not renewed")
		}
		second := getToken(t, p, later)
		if second == first {
			t.Error("the same token")
		}
		// Calls that were under way with the first one change nothing.
		if !p.refresh(first, later) || getToken(t, p, later) != second {
			t.Error("renewed twice")
		}
	})
	t.Run("stays when it is newer", func(t *testing.T) {
		t.Parallel()
		p := testProviderToken()
		first := getToken(t, p, start)
		soon := start.Add(20*time.Minute - 1)
		if p.refresh(first, soon) || getToken(t, p, soon) != first {
			t.Error("renewed more often than Apple allows")
		}
	})
}

// In one Send there is one call; the retry is what uses the new token.
func TestAPNsExpiredTokenIsRenewedForTheRetry(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	refused := map[string]bool{}
	srv := newAPNsServer(t, true, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if refused[r.Header.Get("Authorization")] {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"reason":"ExpiredProviderToken"}`)
			return
		}
		acceptAPNs(w, r)
	})
	p, c := srv.provider(t), newClock()
	p.now = c.Now
	send := func() (channels.Result, string) {
		r := p.Send(t.Context(), deviceMessage(ProviderAPNs))
		if len(srv.request) != 1 {
			t.Fatalf("%d calls of one send (%+v)", len(srv.request), r)
		}
		<-srv.body
		return r, (<-srv.request).Header.Get("Authorization")
	}
	r, first := send()
	if r.Outcome != notify.Accepted || !strings.HasPrefix(first, "bearer ") {
		t.Fatalf("%+v, authorization %q", r, first)
	}
	mu.Lock()
	refused[first] = true
	mu.Unlock()
	c.advance(30 * time.Minute)
	if r, used := send(); used != first || r.Outcome != notify.Throttled || r.Scope != "" || r.RetryAfter != time.Second {
		t.Errorf("of the old token: %+v", r)
	}
	r, second := send()
	if second == first || r.Outcome != notify.Accepted {
		t.Errorf("of the new token: %+v", r)
	}
	mu.Lock()
	refused[second] = true
	mu.Unlock()
	c.advance(time.Minute)
	if r, used := send(); used != second || r.Outcome != notify.AccountRejected || r.Code != "ExpiredProviderToken" {
		t.Errorf("of a token refused though new: %+v", r)
	}
}
