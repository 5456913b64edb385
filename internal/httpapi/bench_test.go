package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// sink accepts everything and keeps nothing.
type sink struct{}

func (sink) Accept(_ context.Context, a store.Accept) (store.Accepted, error) {
	return store.Accepted{ID: a.Notification.ID, Answer: a.Answer}, nil
}

// nowhere is a response that is thrown away.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) WriteHeader(int)             {}

// BenchmarkPost is what the API costs a request, without HTTP and the database.
func BenchmarkPost(b *testing.B) {
	f := newFake()
	api := httpapi.New(httpapi.Config{Accept: sink{}, Store: f, Keys: f, Accounts: f})
	b.ReportAllocs()
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/notifications", strings.NewReader(good))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer dsp_all")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
		api.ServeHTTP(nowhere{http.Header{}}, r)
	}
}

// BenchmarkLimits is what the limits add to a request whose key has tokens
// leased: compare with BenchmarkPost.
func BenchmarkLimits(b *testing.B) {
	f := newFake()
	limits := limitsOf(running(b, &tokens{keys: map[string]*resilience.GCRA{}}), 1_000_000)
	limits.Classes[store.ClassWrite] = resilience.Limit{PerSecond: resilience.MaxPerSecond, Burst: resilience.MaxBurst}
	api := httpapi.New(httpapi.Config{Accept: sink{}, Store: f, Keys: f, Accounts: f, Limits: limits})
	b.ReportAllocs()
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/notifications", strings.NewReader(good))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer dsp_all")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
		api.ServeHTTP(nowhere{http.Header{}}, r)
	}
}
