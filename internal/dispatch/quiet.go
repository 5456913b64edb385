package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// quietFor is how long a message of River's is not repeated: while the database
// is away each queue reports it at every poll.
const quietFor = 30 * time.Second

// quiet drops what River reports of its ordinary life, and repeats.
func quiet(log *slog.Logger) *slog.Logger {
	return slog.New(quietHandler{log.Handler(), &lastSaid{at: map[string]time.Time{}}})
}

type quietHandler struct {
	slog.Handler
	last *lastSaid
}

// lastSaid is when each message was last logged. River's messages are constants,
// so there are few.
type lastSaid struct {
	mu sync.Mutex
	at map[string]time.Time
}

// Enabled implements [slog.Handler].
func (h quietHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

// Handle implements [slog.Handler].
func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	h.last.mu.Lock()
	at, said := h.last.at[r.Message]
	if said && r.Time.Sub(at) < quietFor {
		h.last.mu.Unlock()
		return nil
	}
	h.last.at[r.Message] = r.Time
	h.last.mu.Unlock()
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h quietHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(a), h.last}
}

// WithGroup implements [slog.Handler].
func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name), h.last}
}
