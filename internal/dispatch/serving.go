package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// watchInterval is how often it is looked at which accounts serve.
const watchInterval = time.Second

// serving is what the log has last said of the accounts that share a channel.
// It is its loop's own.
type serving struct {
	because map[string]string // of those that are passed over, by name
}

// watchAccounts tells the log when an account is passed over for another one, and
// when it serves again: once for each change, not for each message. The metrics
// are told each account's share.
func (d *Dispatcher) watchAccounts(s *serving) func(context.Context) error {
	return func(ctx context.Context) error {
		if !d.cfg.Admission.Known() {
			return nil
		}
		now := d.cfg.Now()
		for _, c := range notify.Channels() {
			d.watchChannel(ctx, s, c, now)
		}
		return nil
	}
}

func (d *Dispatcher) watchChannel(ctx context.Context, s *serving, c notify.Channel, now time.Time) {
	groups := map[string][]*Account{}
	for _, a := range d.registry.Load().Channel(c).Accounts {
		if !a.Hidden {
			groups[a.Group()] = append(groups[a.Group()], a)
		}
	}
	for _, accounts := range groups {
		d.watchGroup(ctx, s, accounts, now)
	}
}

func (d *Dispatcher) watchGroup(ctx context.Context, s *serving, accounts []*Account, now time.Time) {
	fares := make([]fallback.Candidate, len(accounts))
	weights := make([]float64, len(accounts))
	health := make([]resilience.Health, len(accounts))
	for i, a := range accounts {
		health[i] = d.cfg.Admission.Health(a, nil, now)
		fares[i], weights[i] = fareOf(a, &health[i], 0), a.Weight
	}
	shares := fallback.Shares(fares, weights)
	best := ""
	for i, a := range accounts {
		d.cfg.Metrics.AccountShare(a.Provider.Info().Account, shares[i])
		if shares[i] > 0 && (best == "" || shares[i] >= 0.5) {
			best = a.Provider.Info().Account
		}
	}
	if len(accounts) < 2 {
		return
	}
	for i, a := range accounts {
		s.say(ctx, d.log, a.Provider.Info(), best, passedNow(&fares[i], &health[i]), &health[i])
	}
}

// passedNow says why all or most deliveries pass an account over; nothing where
// they do not for a reason of its own.
func passedNow(f *fallback.Candidate, h *resilience.Health) string {
	switch {
	case h.Denied && h.Denial.Kind == resilience.KindRamp, f.Share < 1:
		return fallback.PassedReturning
	case f.Bar.Reason != "":
		return string(f.Bar.Reason)
	case f.Probe:
		return string(notify.WaitBreakerOpen)
	}
	return ""
}

// say logs a change of one account.
func (s *serving) say(ctx context.Context, log *slog.Logger, a channels.Info, best, because string, h *resilience.Health) {
	before, was := s.because[a.Account]
	if because == before {
		return
	}
	about := []any{slog.String("account", a.Account), slog.String("channel", string(a.Channel))}
	if because == "" {
		delete(s.because, a.Account)
		log.InfoContext(ctx, "account serves again", about...)
		return
	}
	s.because[a.Account] = because
	if because == fallback.PassedReturning && !was {
		return // the process has just started, or the breaker was reset before it opened here
	}
	about = append(about, slog.String("reason", because), slog.String("breaker", string(h.Reason)), slog.String("provider_code", h.Code),
		slog.Time("until", h.Denial.Until), slog.String("serving", best))
	if because == fallback.PassedReturning {
		log.InfoContext(ctx, "calls come back to account", about...)
		return
	}
	log.WarnContext(ctx, "account is passed over", about...)
}
