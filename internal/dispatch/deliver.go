package dispatch

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// capacityWait is when a delivery that steps aside, because too many calls of its
// channel or destination are under way, is expected to move.
const capacityWait = 100 * time.Millisecond

// run works through an envelope, every delivery on its own, and reports whether
// all of them were dealt with. Those that were not have not been claimed.
func (d *Dispatcher) run(ctx context.Context, e store.Envelope) bool {
	if len(e.Items) == 1 {
		return d.deliverSafely(ctx, &e, e.Items[0])
	}
	var left atomic.Bool
	var wg sync.WaitGroup
	for _, item := range e.Items {
		wg.Go(func() {
			if !d.deliverSafely(ctx, &e, item) {
				left.Store(true)
			}
		})
	}
	wg.Wait()
	return !left.Load()
}

// deliverSafely is deliver, which a panic does not take the process down with.
func (d *Dispatcher) deliverSafely(ctx context.Context, e *store.Envelope, item store.Item) (done bool) {
	defer func() {
		if p := recover(); p != nil {
			d.panicked(ctx, item.Delivery(), p)
		}
	}()
	return d.deliver(ctx, e, item)
}

// deliver takes one delivery as far as one job can: admitted, claimed, sent,
// decided and recorded, or the reason why not recorded. It reports false when it
// was not claimed and nothing was written.
func (d *Dispatcher) deliver(ctx context.Context, e *store.Envelope, item store.Item) bool {
	now := d.cfg.Now()
	if ctx.Err() != nil || !d.mayCall(now) {
		return false
	}
	registry := d.registry.Load()
	switch {
	case registry.pick(e.Channel, e.Project, item.Pinned, item.Needs) == nil:
		return d.uncalled(ctx, item, func(s fallback.State, p fallback.Policy, _ *loaded) fallback.Decision {
			return fallback.Impossible(s, fallback.BecauseNoAccount)
		})
	case !d.theirs(now).Before(item.EndsAt()):
		return d.uncalled(ctx, item, func(s fallback.State, p fallback.Policy, l *loaded) fallback.Decision {
			return fallback.Overdue(s, p, l.delivery.Because, d.theirs(now))
		})
	case d.paused()[e.Channel]:
		return d.refuse(ctx, item, Refusal{Reason: notify.WaitPaused, Scope: channelScope(e.Channel)})
	}
	way := d.admit(ctx, registry, e, &item, now)
	switch {
	case way.refused != nil:
		if way.full && item.Held == 0 {
			item.Held = d.theirs(now).UnixMilli() // the time in line counts
		}
		return d.refuse(ctx, item, *way.refused)
	case way.ticket == nil:
		return false // stopped in line
	}
	defer way.place.leave(false)
	way.heldSince = item.HeldSince()
	ticket, asked := way.ticket, d.cfg.Now()
	handed := false
	defer func() {
		if !handed {
			ticket.Withdraw(ctx, d.cfg.Now())
		}
	}()
	claimed, err := d.claim(ctx, e.Channel, store.Claim{
		DeliveryID: item.Delivery(), Turn: item.Turn, Account: way.account.Provider.Info().Account, ID: uuid.New(),
	})
	if err != nil {
		// Claims are tried for as long as the node works, so this is its end or a fault
		// of ours. Should the claim have been committed, the reaper will take it for a
		// call whose outcome is unknown.
		if ctx.Err() == nil {
			d.log.ErrorContext(ctx, "claim failed", idOf(item.Delivery()), slog.Any("error", err))
		}
		return false
	}
	switch {
	case claimed.locked:
		return false
	case claimed.delivery == nil:
		ticket.Withdraw(ctx, d.cfg.Now())
		way.place.leave(false)
		return d.unclaimed(ctx, item)
	}
	claimed.delivery.Refused = item.Refused
	handed = true
	d.callSafely(ctx, claimed.delivery, &way, asked)
	return true
}

// callSafely is call; a panic in it leaves the outcome unknown.
func (d *Dispatcher) callSafely(ctx context.Context, c *store.Claimed, way *route, asked time.Time) {
	defer func() {
		if p := recover(); p != nil {
			d.panicked(ctx, c.DeliveryID, p)
			way.ticket.Withdraw(ctx, d.cfg.Now())
			if err := d.settleOrphan(context.WithoutCancel(ctx), c.Delivery, lasting); err != nil {
				d.log.ErrorContext(ctx, "claim left behind by a panic", idOf(c.DeliveryID), slog.Any("error", err))
			}
		}
	}()
	leave, err := d.loadContent(ctx, c)
	if err != nil {
		way.ticket.Withdraw(ctx, d.cfg.Now())
		d.log.WarnContext(ctx, "content cannot be read yet", idOf(c.DeliveryID), slog.Any("error", err))
		d.giveUp(context.WithoutCancel(ctx), c, way)
		return
	}
	leave = sync.OnceFunc(leave)
	defer leave()
	switch {
	case c.Invalid != nil:
		way.ticket.Withdraw(ctx, d.cfg.Now())
		d.invalid(context.WithoutCancel(ctx), c)
	case d.unfit(c, way.account):
		way.ticket.Withdraw(ctx, d.cfg.Now())
		d.passOn(context.WithoutCancel(ctx), c, way.account)
	case d.blind(c, way.account):
		way.ticket.Withdraw(ctx, d.cfg.Now())
		d.unobservable(context.WithoutCancel(ctx), c)
	default:
		d.call(ctx, c, way, asked, leave)
	}
}

// invalid ends a delivery whose notification cannot be read.
func (d *Dispatcher) invalid(ctx context.Context, c *store.Claimed) {
	d.log.ErrorContext(ctx, "stored notification cannot be read", idOf(c.DeliveryID), slog.Any("error", c.Invalid))
	n := c.Notification
	n.Chain = n.Chain[:c.Step+1] // where the chain would go on cannot be trusted
	decision := fallback.Impossible(stateOf(&c.Delivery), fallback.BecauseInvalid)
	d.commit(ctx, &n, &c.Delivery, decision, d.result(&n, c.Delivery, decision, d.now()), lasting)
}

// mayCall reports whether this node may start calls: it was released, it knows
// what is paused and what breakers and gates hold, and it knows that the cluster
// sees it alive.
func (d *Dispatcher) mayCall(now time.Time) bool {
	return closed(d.released) && d.pauses.Load() != nil && d.cfg.Admission.Known() && d.alive.beating(now)
}

// claimReply is the answer to a claim: the delivery, or nothing where it may not be
// called, or that nothing can be said while somebody else has locked its row.
type claimReply struct {
	delivery *store.Claimed
	locked   bool
}

// lockedClaimLimit is for how long a delivery that somebody else has locked is
// asked for again before its job is given back. That somebody may be an earlier
// try of the claim itself, whose connection broke and which Postgres has not
// finished with.
const lockedClaimLimit = 5 * time.Second

// claim asks for the right to call. Once asked for, it is waited for also where the
// job has ended meanwhile: nobody else would give back what was claimed, as long
// as this node lives.
func (d *Dispatcher) claim(ctx context.Context, c notify.Channel, claim store.Claim) (claimReply, error) {
	claims, begun := d.plain, time.Now()
	if c == notify.SMS || c == notify.WhatsApp {
		claims = d.durable
	}
	for try := 0; ; try++ {
		reply, err := claims.do(context.WithoutCancel(ctx), claim)
		if err != nil || !reply.locked || time.Since(begun) > lockedClaimLimit || ctx.Err() != nil {
			return reply, err
		}
		d.sayLocked(ctx, claim.DeliveryID)
		select {
		case <-time.After(min(recordPause<<min(try, 16), lockedPauseCap)):
		case <-ctx.Done():
		}
	}
}

func (d *Dispatcher) flushClaims(durable bool) func(context.Context, []store.Claim) ([]claimReply, error) {
	return func(ctx context.Context, claims []store.Claim) ([]claimReply, error) {
		rows, locked, err := d.store.Claim(ctx, d.node, claims, durable)
		if err != nil {
			return nil, err
		}
		at := make(map[store.DeliveryID]claimReply, len(rows)+len(locked))
		for i := range rows {
			at[rows[i].DeliveryID] = claimReply{delivery: &rows[i]}
		}
		for _, id := range locked {
			at[id] = claimReply{locked: true}
		}
		out := make([]claimReply, len(claims))
		for i, c := range claims {
			out[i] = at[c.DeliveryID]
		}
		return out, nil
	}
}

// call makes the one call of a claim that was asked for at an instant, and records
// what came of it. It calls sent when the content is not needed any more.
func (d *Dispatcher) call(ctx context.Context, c *store.Claimed, way *route, asked time.Time, sent func()) {
	a, ticket := way.account, way.ticket
	if err := d.link(ctx, &c.Notification); err != nil {
		d.log.WarnContext(ctx, "delivery cannot be sent yet", idOf(c.DeliveryID), slog.Any("error", err))
		ticket.Withdraw(ctx, d.cfg.Now())
		d.giveUp(context.WithoutCancel(ctx), c, way)
		return
	}
	started := d.cfg.Now()
	until, ok := ticket.Start(started)
	if !ok || ctx.Err() != nil || !d.mayCall(started) || !d.alive.holds(asked, started) {
		// A gate or breaker shut meanwhile, the job was to end, or it is too late to be
		// sure that nobody has taken the delivery over.
		ticket.Withdraw(ctx, started)
		d.giveUp(context.WithoutCancel(ctx), c, way)
		return
	}
	deadline := started.Add(a.Timeout)
	if !until.IsZero() && until.Before(deadline) {
		deadline = until
	}
	result := d.send(ctx, c, a, deadline)
	c.Notification.Content = notify.Content{}
	sent()
	result = result.Clean()
	took := d.cfg.Now().Sub(started)
	ticket.Report(ctx, result, took, d.cfg.Now())
	way.place.leave(true) // to have the result recorded takes none
	d.metrics(c.Project).Attempt(c.Channel, result.Outcome, took)
	if len(way.passed) > 0 {
		d.metrics(c.Project).Failover(way.passed[0].account, a.Provider.Info().Account, way.passed[0].because)
		result.Detail = strings.TrimSuffix(way.detail()+"; "+result.Detail, "; ")
		result = result.Clean()
	}
	attempt := &store.Attempt{
		DeliveryID: c.DeliveryID, Turn: c.Turn, ID: c.ClaimID, N: max(c.Calls, 1), Node: d.node,
		Account: a.Provider.Info().Account, StartedAt: started, Duration: took, Outcome: result.Outcome,
		HTTPStatus: result.HTTPStatus, RetryAfter: result.RetryAfter, ProviderCode: result.Code,
		ProviderMessageID: result.MessageID, Detail: result.Detail, PossibleDuplicate: c.Repeats > 0,
	}
	// The result is recorded whatever becomes of the job: losing it would mean
	// sending again.
	d.settle(context.WithoutCancel(ctx), &c.Notification, c.Delivery, attempt, outcomeOf(result, a), lasting)
}

// giveUp gives a claim back for which no call was made.
func (d *Dispatcher) giveUp(ctx context.Context, c *store.Claimed, way *route) {
	way.place.leave(false)
	now := d.now()
	o := outcome{Outcome: fallback.Outcome{Kind: notify.NotAttempted}, account: way.account}
	policy := d.registry.Load().policy(&c.Notification, int(c.Step), way.account, rand.Float64())
	decision := fallback.Decide(stateOf(&c.Delivery), policy, o.Outcome, now)
	r := d.result(&c.Notification, c.Delivery, decision, now)
	r.Uncalled = true
	heldOn(&r, &c.Delivery, way.heldSince)
	if d.commit(ctx, &c.Notification, &c.Delivery, decision, r, lasting) == store.Late {
		d.late(ctx, c.Delivery, o)
	}
}

// send makes the call, which has to be over by the deadline. A panic of the
// adapter is an unknown outcome: how far the call had come is open.
func (d *Dispatcher) send(ctx context.Context, c *store.Claimed, a *Account, deadline time.Time) (result channels.Result) {
	// A stop lets the call finish; its own deadline is the bound.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			d.panicked(ctx, c.DeliveryID, p)
			result = channels.Result{Outcome: notify.Unknown, Detail: "adapter panicked"}
		}
	}()
	m := message(&c.Notification, int(c.Step), int(c.Target), int(c.Round))
	m.Ref = channels.Ref{Notification: m.NotificationID, Step: int(c.Step), Target: int(c.Target), Attempt: c.ClaimID}
	m.Callback = d.callback(a.Provider.Info().Account, m.Ref)
	if checker, ok := a.Provider.(channels.Checker); ok {
		if err := checker.Check(m); err != nil {
			return channels.Result{Outcome: notify.MessageRejected, Code: "check", Detail: err.Error()}
		}
	}
	return a.Provider.Send(ctx, m)
}

func outcomeOf(r channels.Result, a *Account) outcome {
	scope := a.Provider.Info().Account
	if r.Scope != "" {
		scope += "/" + r.Scope
	}
	o := outcome{Outcome: fallback.Outcome{Kind: r.Outcome, Status: r.Status, RetryAfter: r.RetryAfter, Scope: scope}, account: a}
	if r.Suppress {
		o.suppress, o.suppressFor = true, r.SuppressFor
	}
	return o
}

func idOf(d store.DeliveryID) slog.Attr {
	return slog.Group("delivery", slog.String("notification_id", d.Notification.String()), slog.Int("step", int(d.Step)),
		slog.Int("target", int(d.Target)))
}
