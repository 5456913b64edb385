package app

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

// queues reads the backlog for the metrics, which are gathered on goroutines of
// their own.
func (a *App) queues(ctx context.Context) (queues []telemetry.Queue, err error) {
	err = a.guard.Do(ctx, panics.Background, "read the queues", func() (err error) {
		queues, err = a.readQueues(ctx)
		return err
	})
	return queues, err
}

func (a *App) readQueues(ctx context.Context) ([]telemetry.Queue, error) {
	backlog, err := a.store.Backlog(ctx, "")
	if err != nil {
		return nil, err
	}
	out := make([]telemetry.Queue, len(backlog))
	for i, b := range backlog {
		out[i] = telemetry.Queue{Channel: b.Channel, Queued: b.Queued, Waiting: b.Waiting}
		if !b.OldestDue.IsZero() {
			out[i].OldestDue = max(time.Since(b.OldestDue), 0)
		}
		out[i].OldestHeld = make(map[notify.WaitReason]time.Duration, len(b.OldestHeld))
		for reason, since := range b.OldestHeld {
			out[i].OldestHeld[reason] = max(time.Since(since), 0)
		}
	}
	return out, nil
}

// watchBreakers tells log and metrics of every change of a breaker until ctx
// ends.
func (a *App) watchBreakers(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_ = a.guard.Round(ctx, "watch breakers", func(ctx context.Context) error { a.tellTransitions(ctx); return nil })
	}
}

func (a *App) tellTransitions(ctx context.Context) {
	for _, t := range a.member.Transitions() {
		if !strings.Contains(t.Scope, "/") {
			a.metrics.Breaker(t.Scope, string(t.To))
		}
		a.log.WarnContext(ctx, "breaker changed", slog.String("scope", t.Scope), slog.String("from", string(t.From)),
			slog.String("to", string(t.To)), slog.String("reason", string(t.Reason)), slog.String("provider_code", t.Code), slog.Time("until", t.Until))
	}
}

// reportPacing tells when rates are kept to by this process alone, because the
// database does not answer, and when they are shared again.
func (a *App) reportPacing(err error) {
	if err != nil {
		a.log.Warn("provider rates are kept to by this process alone", slog.Any("error", err))
		return
	}
	a.log.Info("provider rates are shared again")
}

// countSuppressions counts what this process changed of suppression lists, by the
// account that it came from or as an operator's doing.
func (a *App) countSuppressions(changes []store.SuppressionChange) {
	for _, c := range changes {
		if c.By != "" || c.Source == "" {
			c.Source = telemetry.Operator
		}
		a.metrics.SuppressionChanged(c.Action, c.Reason, c.Source)
	}
}
