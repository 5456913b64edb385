package channeltest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// hugeBody is more than socket buffers hold and more than an adapter may read.
const hugeBody = 64 << 20

func (s Suite) checkHugeBody(t *testing.T) {
	ok, _ := s.acceptance(t)
	for _, status := range []int{ok, 400, 500} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			whole := make(chan bool, 1)
			g := newRig(t, s, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, err := io.WriteString(w, `{"message":"`)
				chunk := bytes.Repeat([]byte("x"), 64<<10)
				for n := 0; err == nil && n < hugeBody; n += len(chunk) {
					_, err = w.Write(chunk)
				}
				whole <- err == nil
			})
			r := g.send(t.Context(), t, 1)
			switch status {
			case ok:
				wantOutcome(t, r, s.unproven())
			case 500:
				wantOutcome(t, r, s.serverError(status))
			default:
				if r.Outcome == notify.Accepted {
					t.Errorf("outcome %q of http status %d", r.Outcome, status)
				}
			}
			if <-whole {
				t.Errorf("the adapter read %d bytes", hugeBody)
			}
		})
	}
}

func (s Suite) checkSlowHeader(t *testing.T) {
	ctx := newExpiring(t.Context())
	g := newRig(t, s, func(_ http.ResponseWriter, r *http.Request) {
		ctx.expire()
		<-r.Context().Done()
	})
	wantOutcome(t, g.send(ctx, t, 1), notify.Unknown)
}

func (s Suite) checkSlowBody(t *testing.T) {
	ok, half := s.acceptance(t)
	for _, status := range []int{ok, 500} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			ctx := newExpiring(t.Context())
			g := newRig(t, s, func(w http.ResponseWriter, r *http.Request) {
				beginAnswer(w, status, half)
				ctx.expire()
				<-r.Context().Done()
			})
			r := g.send(ctx, t, 1)
			// Whether the header got through before the deadline is chance.
			if status == ok {
				wantOutcome(t, r, s.unproven(), notify.Unknown)
			} else {
				wantOutcome(t, r, s.serverError(status), notify.Unknown)
			}
		})
	}
}

func (s Suite) checkBrokenAnswer(t *testing.T) {
	ok, half := s.acceptance(t)
	for _, status := range []int{ok, 500} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			g := newRig(t, s, func(w http.ResponseWriter, _ *http.Request) {
				beginAnswer(w, status, half)
				panic(http.ErrAbortHandler)
			})
			r := g.send(t.Context(), t, 1)
			if status == ok {
				wantOutcome(t, r, s.unproven())
			} else {
				wantOutcome(t, r, s.serverError(status), notify.Unknown)
			}
		})
	}
}

// beginAnswer sends a header that promises more than the half of the body that
// follows it. No header but the content's: some vendors prove success in one.
func beginAnswer(w http.ResponseWriter, status int, half string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(2*len(half)+1))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, half)
	_ = http.NewResponseController(w).Flush()
}

func (s Suite) checkClosedAfterRequest(t *testing.T) {
	for _, used := range []bool{false, true} {
		name := "on a new connection"
		if used {
			// Where net/http would send again what it takes to be idempotent.
			name = "on a used connection"
		}
		t.Run(name, func(t *testing.T) {
			var closing atomic.Bool
			closing.Store(!used)
			g := newRig(t, s, func(w http.ResponseWriter, r *http.Request) {
				if closing.Swap(true) {
					panic(http.ErrAbortHandler)
				}
				s.Accept(w, r)
			})
			if used {
				wantOutcome(t, g.send(t.Context(), t, 1), s.Want.Outcome)
			}
			wantOutcome(t, g.send(t.Context(), t, 1), notify.Unknown)
		})
	}
}

func (s Suite) checkRefused(t *testing.T) {
	g := newRefusingRig(t, s)
	wantOutcome(t, g.send(t.Context(), t, 0), notify.ProviderUnavailable)
}

func (s Suite) checkCanceledBefore(t *testing.T) {
	g := newRig(t, s, s.Accept)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantOutcome(t, g.send(ctx, t, 0), notify.NotAttempted)
	if n := g.asides.Load(); n != 0 {
		t.Errorf("%d requests beside the message's under a canceled context", n)
	}
}

func (s Suite) checkCanceledDuring(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := newRig(t, s, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	wantOutcome(t, g.send(ctx, t, 1), notify.Unknown)
}

func (s Suite) checkConcurrent(t *testing.T) {
	const senders, each = 8, 4
	g := newRig(t, s, s.Accept)
	m := s.Message(g.url) // one message for all: adapters must not write to it
	results := make([][]channels.Result, senders)
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			for range each {
				results[i] = append(results[i], g.provider.Send(t.Context(), m))
			}
		})
	}
	wg.Wait()
	for _, rs := range results {
		for _, r := range rs {
			if compare(t, r, s.Want); t.Failed() {
				return
			}
		}
	}
	if n := g.sends.Load(); n != senders*each {
		t.Errorf("%d sends made %d requests", senders*each, n)
	}
}
