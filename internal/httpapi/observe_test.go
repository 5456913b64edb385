package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
)

func TestEveryRequestIsObservedByItsRoute(t *testing.T) {
	t.Parallel()
	var got []string
	api := httpapi.New(httpapi.Config{Observe: func(route, method string, status int, _ time.Duration) {
		got = append(got, method+" "+route+" "+http.StatusText(status))
	}})
	for _, target := range []string{"/livez", "/v1/notifications/01a22bdd-9a38-768b-bc9b-f618b424ccd6", "/nowhere"} {
		api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody))
	}
	want := []string{"GET GET /livez OK", "GET GET /v1/notifications/{id} Unauthorized", "GET / Not Found"}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("observed %q, want %q", got, want)
		}
	}
}
