package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/panics"
)

// brittle is an answer that panics when it is written.
type brittle struct{ *httptest.ResponseRecorder }

func (brittle) Write([]byte) (int, error) { panic("no") }

func TestAnAnswerThatPanicsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	caught := make(chan panics.Part, 1)
	w := brittle{httptest.NewRecorder()}
	o := newOutbox(t.Context(), panics.New(nil, func(p panics.Part) { caught <- p }), w, http.NewResponseController(w))
	for range 3 {
		o.write(make([]byte, outboxSize))
	}
	o.close()
	if part := <-caught; part != panics.Request {
		t.Errorf("counted for %q", part)
	}
}
