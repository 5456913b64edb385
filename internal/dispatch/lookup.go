package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

const (
	// lookupTimeout bounds one look-up, where the account's own is not shorter. With
	// the reads and writes around it, it ends before the timer that started it comes
	// again.
	lookupTimeout = 5 * time.Second
	// maxLookups bounds how many a node makes at once.
	maxLookups = 16
)

// lookUp marks an admission's call as one that sends nothing: it neither earns
// nor uses up retries.
const lookUp store.RetryKind = -1

// lookups are those under way. They run beside the waker, which must not wait for
// providers.
type lookups struct {
	running sync.WaitGroup
	places  chan struct{}
}

func newLookups() *lookups { return &lookups{places: make(chan struct{}, maxLookups)} }

// start runs do beside the caller, or not at all when there is no place for it.
func (l *lookups) start(do func()) {
	select {
	case l.places <- struct{}{}:
	default:
		return
	}
	l.running.Go(func() {
		defer func() { <-l.places }()
		do()
	})
}

// free returns how many more could start.
func (l *lookups) free() int { return cap(l.places) - len(l.places) }

// lookup returns the provider's look-up, nil if it has none.
func (a *Account) lookup() channels.Lookup {
	l, _ := a.Provider.(channels.Lookup)
	return l
}

// named returns an account of a channel by its name, nil if there is none.
func (r *Registry) named(c notify.Channel, account string) *Account {
	for _, a := range r.channels[c].Accounts {
		if a.Provider.Info().Account == account {
			return a
		}
	}
	return nil
}

// asks reports whether a reconciling delivery's provider can be asked.
func (d *Dispatcher) asks(l *loaded) bool {
	a := d.registry.Load().named(l.delivery.Channel, l.delivery.Account)
	return l.record.Invalid == nil && a != nil && a.lookup() != nil
}

// reconcile asks the provider what became of a delivery's call, decides and
// records. Where it cannot come to that, nothing is written: the timer comes again.
func (d *Dispatcher) reconcile(ctx context.Context, l *loaded) {
	attempt, err := d.store.LastAttempt(ctx, l.delivery.DeliveryID)
	if err != nil {
		d.cannotReconcile(ctx, l, err)
		return
	}
	account := d.registry.Load().named(l.delivery.Channel, l.delivery.Account)
	o := outcome{Outcome: fallback.Outcome{Kind: attempt.Outcome, Scope: attempt.Account}, account: account}
	if attempt.Outcome == notify.Unknown && l.delivery.Status == notify.Uncertain && l.delivery.Stop == "" {
		o, err = d.ask(ctx, l, account, attempt)
	}
	if err != nil || ctx.Err() != nil && o.Kind == notify.Unknown {
		d.cannotReconcile(ctx, l, err)
		return
	}
	now := d.now()
	n := &l.record.Notification
	policy := d.registry.Load().policy(n, int(l.delivery.Step), account, rand.Float64())
	decision := fallback.Reconcile(stateOf(&l.delivery), policy, o.Outcome, attempt.StartedAt.Add(attempt.Duration), now)
	r := d.result(n, l.delivery, decision, now)
	r.Waited, r.Suppress = true, o.suppression(&l.delivery, now)
	ctx = context.WithoutCancel(ctx) // what was learned is recorded like a call's outcome
	if d.commit(ctx, n, &l.delivery, decision, r, passing) == store.Late && o.Kind == notify.Accepted {
		d.late(ctx, l.delivery, o)
	}
}

func (d *Dispatcher) cannotReconcile(ctx context.Context, l *loaded, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, errSettledElsewhere) {
		d.log.WarnContext(ctx, "unknown outcome cannot be settled yet", idOf(l.delivery.DeliveryID), slog.Any("error", err))
	}
}

// errSettledElsewhere: another look-up, or the worker that made the call, knows
// the outcome already and decides.
var errSettledElsewhere = errors.New("settled elsewhere")

// ask looks an attempt up and settles it with what it came to. The outcome stays
// Unknown where nobody can tell.
func (d *Dispatcher) ask(ctx context.Context, l *loaded, a *Account, attempt store.Attempt) (outcome, error) {
	unknown := outcomeOf(channels.Result{Outcome: notify.Unknown}, a)
	seen, ok := d.sight(ctx, l, a, attempt)
	if !ok {
		return unknown, nil
	}
	for _, m := range seen.Messages {
		m = m.Clean()
		if m.Outcome == notify.Unknown {
			return unknown, nil
		}
		if m.Detail == "" {
			m.Detail = "looked up at the provider"
		}
		switch fate, err := d.store.SettleAttempt(ctx, settled(attempt, m)); {
		case err != nil:
			return unknown, err
		case fate == store.Settled:
			return outcomeOf(m, a), nil
		case fate == store.Moved:
			return unknown, errSettledElsewhere
		case fate == store.Contested:
			return unknown, nil
		}
	}
	if !seen.Complete {
		return unknown, nil
	}
	absent := channels.Result{Outcome: notify.ProviderUnavailable, Detail: "looked up: the provider has no such message"}
	switch fate, err := d.store.SettleAttempt(ctx, settled(attempt, absent)); {
	case err != nil:
		return unknown, err
	case fate == store.Moved:
		return unknown, errSettledElsewhere
	}
	return outcomeOf(absent, a), nil
}

func settled(a store.Attempt, r channels.Result) store.Attempt {
	a.Outcome, a.ProviderCode, a.ProviderMessageID, a.Detail = r.Outcome, r.Code, r.MessageID, r.Detail
	return a
}

// sight makes the one call of a look-up, if it is admitted.
func (d *Dispatcher) sight(ctx context.Context, l *loaded, a *Account, attempt store.Attempt) (seen channels.Sighting, made bool) {
	n := l.record.Notification
	var err error
	if n.Content, err = d.store.Content(ctx, n.ID); err == nil { // which tells it from others
		err = d.link(ctx, &n)
	}
	if err != nil {
		d.cannotReconcile(ctx, l, err)
		return seen, false
	}
	m := message(&n, int(l.delivery.Step), int(l.delivery.Target), int(l.delivery.Round))
	m.Ref = channels.Ref{Notification: m.NotificationID, Step: int(l.delivery.Step), Target: int(l.delivery.Target), Attempt: attempt.ID}
	made = d.aside(ctx, a, l.delivery.Channel, a.lookup().LookupScopes(m.To), func(ctx context.Context) channels.Result {
		seen = d.lookUp(ctx, a, m, attempt)
		return seen.Call
	})
	return seen, made
}

// lookUp is the adapter's own, whose panic shows nothing.
func (d *Dispatcher) lookUp(ctx context.Context, a *Account, m *channels.Message, attempt store.Attempt) (s channels.Sighting) {
	defer func() {
		if p := recover(); p != nil {
			d.panicked(ctx, attempt.DeliveryID, p)
			s = channels.Sighting{Call: channels.Result{Outcome: notify.NotAttempted, Detail: "adapter panicked"}}
		}
	}()
	return a.lookup().LookUp(ctx, m, attempt.StartedAt, attempt.StartedAt.Add(attempt.Duration))
}

// besides is what a look-up's call says to breakers and gates. It says nothing on
// whether messages can be sent: a provider may show them and take none, or the
// other way round. What it asks in Retry-After holds all the same.
func besides(r channels.Result) channels.Result {
	if r.Outcome == notify.Throttled && r.RetryAfter == 0 {
		r.RetryAfter = defaultQuiet
	}
	return channels.Result{Outcome: notify.NotAttempted, Scope: r.Scope, RetryAfter: r.RetryAfter}
}
