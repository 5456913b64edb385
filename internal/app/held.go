package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

const (
	// heldTooLong is for how long a scope may hold a delivery before the log says
	// so: longer than any open time or Retry-After that passes by itself, so that
	// somebody has to look.
	heldTooLong = 15 * time.Minute
	// heldAgain is when the log says so once more.
	heldAgain = time.Hour
	// heldInterval is how often it is looked at.
	heldInterval = time.Minute
	// heldGroups bounds how many groups of held deliveries are looked at, heldLines
	// how many scopes are named in one round, and heldCount how far they are
	// counted.
	heldGroups = 5000
	heldLines  = 20
	heldCount  = 10_000
)

// heldWatch knows which scopes the log has named. It guards the guards: a breaker
// or gate that never opens again must not go unseen.
type heldWatch struct{ named map[string]time.Time }

// news returns what the log has not said within heldAgain, at most heldLines of
// it; the rest comes the next time. Scopes that no longer hold anything for too
// long are forgotten.
func (w *heldWatch) news(held []store.Hold, now time.Time) []store.Hold {
	still := make(map[string]time.Time, len(held))
	var out []store.Hold
	for _, h := range held {
		at, named := w.named[h.Scope]
		switch {
		case named && now.Sub(at) < heldAgain:
			still[h.Scope] = at
		case len(out) < heldLines:
			still[h.Scope] = now
			out = append(out, h)
		}
	}
	w.named = still
	return out
}

// watchHeld says in the log which scopes have held deliveries for too long. Of
// all processes the one that has worked longest does.
func (a *App) watchHeld(ctx context.Context) {
	ticker := time.NewTicker(heldInterval)
	defer ticker.Stop()
	w := &heldWatch{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := a.guard.Round(ctx, "see what is held", func(ctx context.Context) error { return a.tellHeld(ctx, w, heldTooLong, time.Now()) })
		if err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "cannot see what is held", slog.Any("error", err))
		}
	}
}

func (a *App) tellHeld(ctx context.Context, w *heldWatch, tooLong time.Duration, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	eldest, err := a.store.EldestNode(ctx)
	if errors.Is(err, store.ErrNotFound) || err == nil && eldest != a.dispatcher.Node() {
		return nil
	}
	if err != nil {
		return err
	}
	held, err := a.store.OldestHeld(ctx, tooLong, heldGroups)
	if err != nil {
		return err
	}
	for _, h := range w.news(held, now) {
		n, err := a.store.CountHeld(ctx, h.Scope, heldCount)
		if err != nil {
			return err
		}
		a.log.WarnContext(ctx, "deliveries are held for long", slog.String("scope", h.Scope), slog.String("channel", string(h.Channel)),
			slog.String("reason", string(h.Reason)), slog.Duration("oldest", h.Age.Round(time.Second)), slog.String("count", bucket(n)))
	}
	return nil
}

// bucket is the order of magnitude of a number up to heldCount.
func bucket(n int) string {
	switch {
	case n >= 10_000:
		return "10000 or more"
	case n >= 1000:
		return "1000 or more"
	case n >= 100:
		return "100 or more"
	case n >= 10:
		return "10 or more"
	}
	return "less than 10"
}
