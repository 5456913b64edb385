package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Scopes keeps a process's part in the shared breakers and gates up to date: it
// hands in evidence each second, and at once where there is reason to, and learns
// what the others changed when they announce it and each second.
type Scopes struct {
	Member *resilience.Member
	Store  *store.Store
	Logger *slog.Logger
	// Guard is what panics are told to; nil for one that writes to Logger.
	Guard *panics.Guard
	Now   func() time.Time // the clock; nil means time.Now
}

// scopesInterval is how often evidence is handed in and changes are looked for
// without any hint.
const scopesInterval = time.Second

// Run works until ctx ends. While the database is away the process decides by
// what it knows.
func (s *Scopes) Run(ctx context.Context) {
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Guard == nil {
		s.Guard = panics.New(s.Logger, nil)
	}
	hints := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Guard.Keep(ctx, "hear of breakers and gates", func(ctx context.Context) { s.listen(ctx, hints) })
	}()
	defer func() { <-done }()
	ticker := time.NewTicker(scopesInterval)
	defer ticker.Stop()
	failing := false
	// No call starts before the shared state is known; see Cluster.Known.
	for flush, refresh := true, true; ; {
		err := s.Guard.Round(ctx, "share breakers and gates", func(ctx context.Context) error { return s.sync(ctx, flush, refresh) })
		if (err != nil) != failing && ctx.Err() == nil {
			failing = err != nil
			if failing {
				s.Logger.WarnContext(ctx, "breakers and gates are decided by this process alone", slog.Any("error", err))
			} else {
				s.Logger.InfoContext(ctx, "breakers and gates are shared again")
			}
		}
		flush, refresh = true, true
		select {
		case <-ctx.Done():
			s.last(ctx)
			return
		case <-ticker.C:
		case <-s.Member.Kicked():
			refresh = false
		case <-hints:
			flush = false
		}
	}
}

func (s *Scopes) sync(ctx context.Context, flush, refresh bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var err error
	if flush {
		err = s.Member.Flush(ctx, s.Now())
	}
	if refresh {
		// Also when nothing could be handed in: what the others found still holds.
		err = errors.Join(err, s.Member.Refresh(ctx, s.Now()))
	}
	return err
}

// last hands in what this process still knows: a gate that it alone has seen
// must not be lost with it.
func (s *Scopes) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := s.Guard.Do(ctx, panics.Background, "share breakers and gates", func() error { return s.Member.Flush(ctx, s.Now()) })
	if err != nil {
		s.Logger.WarnContext(ctx, "last evidence not handed in", slog.Any("error", err))
	}
}

// listen passes on announcements until ctx ends. A lost connection is made again;
// what was announced meanwhile is found by looking.
func (s *Scopes) listen(ctx context.Context, hints chan<- struct{}) {
	for ctx.Err() == nil {
		err := s.Store.Listen(ctx, store.ScopesChannel, func() {
			select {
			case hints <- struct{}{}:
			default:
			}
		})
		if err != nil && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(scopesInterval):
			}
		}
	}
}
