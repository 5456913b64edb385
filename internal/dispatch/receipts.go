package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

const (
	receiptLimit  = 200
	receiptRounds = 4
	// receiptTries is how often receipts are weighed again in one go because their
	// delivery moved on meanwhile; after that they come again by themselves.
	receiptTries = 5
)

// callback is where a provider may report what becomes of a message; empty where
// the service has no public address.
func (d *Dispatcher) callback(account string, ref channels.Ref) string {
	if d.cfg.PublicURL == "" {
		return ""
	}
	return strings.TrimSuffix(d.cfg.PublicURL, "/") + "/v1/receipts/" + account + "/status/" + ref.String()
}

// receive applies the receipts that have come. Which of them are open stands in the
// database, so it makes no difference which node took them in, or died over them.
func (d *Dispatcher) receive(ctx context.Context) error {
	for range receiptRounds {
		due, err := d.store.TakeReceipts(ctx, receiptLimit)
		if err != nil {
			return err
		}
		if err := d.applyAll(ctx, due.Receipts); err != nil {
			return err
		}
		if len(due.Receipts)+due.Parked < receiptLimit {
			return nil
		}
	}
	return nil
}

// applyAll applies receipts to their deliveries, all at once, so that they share
// their reads and writes.
func (d *Dispatcher) applyAll(ctx context.Context, receipts []store.Receipt) error {
	open := map[store.DeliveryID][]store.Receipt{}
	for _, r := range receipts {
		open[r.DeliveryID] = append(open[r.DeliveryID], r)
	}
	for try := 0; len(open) > 0 && try < receiptTries; try++ {
		var ids []uuid.UUID
		for id := range open {
			ids = append(ids, id.Notification)
		}
		histories, err := d.store.Histories(ctx, ids)
		if err != nil {
			return err
		}
		var all appliance
		var wg sync.WaitGroup
		for i := range histories {
			h := &histories[i]
			for j := range h.Deliveries {
				if fresh := open[h.Deliveries[j].DeliveryID]; len(fresh) > 0 {
					wg.Go(func() { d.apply(ctx, h, h.Deliveries[j], fresh, &all) })
				}
			}
		}
		wg.Wait()
		if len(all.idle) > 0 {
			all.errs = append(all.errs, d.store.Applied(ctx, all.idle, all.suppress))
		}
		if err := errors.Join(all.errs...); err != nil {
			return err
		}
		for id := range open {
			if !all.late[id] {
				delete(open, id)
			}
		}
	}
	return nil
}

// appliance gathers what became of receipts.
type appliance struct {
	mu       sync.Mutex
	idle     []uuid.UUID // changed nothing
	suppress []*store.Suppression
	late     map[store.DeliveryID]bool // their delivery moved on meanwhile
	errs     []error
}

func (a *appliance) add(idle []uuid.UUID, s *store.Suppression) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.idle = append(a.idle, idle...)
	if s != nil {
		a.suppress = append(a.suppress, s)
	}
}

func (a *appliance) missed(id store.DeliveryID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.late == nil {
		a.late = map[store.DeliveryID]bool{}
	}
	a.late[id] = true
}

func (a *appliance) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.errs = append(a.errs, err)
}

// apply weighs all that is known of one delivery, of which fresh receipts are new,
// and records what follows.
func (d *Dispatcher) apply(ctx context.Context, h *store.Record, delivery store.Delivery, fresh []store.Receipt, all *appliance) {
	defer func() {
		if p := recover(); p != nil {
			d.panicked(ctx, delivery.DeliveryID, p)
		}
	}()
	now := d.now()
	evidence := fallback.Weigh(callsOf(h, &delivery))
	ids, suppress := make([]uuid.UUID, len(fresh)), suppressionBy(&delivery, fresh, now)
	for i := range fresh {
		ids[i] = fresh[i].ID
	}
	if delivery.Final {
		d.correct(ctx, h, &delivery, evidence, store.Correction{DeliveryID: delivery.DeliveryID, Receipts: ids, Suppress: suppress}, all)
		return
	}
	n, registry := h.Notification, d.registry.Load()
	if h.Invalid != nil {
		n.Chain = n.Chain[:delivery.Step+1] // where the chain would go on cannot be trusted
	}
	account := registry.named(delivery.Channel, delivery.Account)
	decision, changed := fallback.Receive(stateOf(&delivery), registry.policy(&n, int(delivery.Step), account, rand.Float64()), evidence, now)
	switch {
	case changed:
		r := d.result(&n, delivery, decision, now)
		r.Waited, r.Receipts, r.Suppress, r.Attempt = true, ids, suppress, unanswered(&delivery, now)
		switch d.commit(ctx, &n, &delivery, decision, r, passing) {
		case store.Written:
			d.received(h, fresh)
		case store.Late:
			all.missed(delivery.DeliveryID)
		default: // they come again
		}
	case evidence.Status == notify.Failed && delivery.ClaimedBy != uuid.Nil && !taken(delivery.Status):
		// A later call is under way. What it comes to decides what this one means, so
		// they come again.
	default:
		d.received(h, fresh)
		all.add(ids, suppress)
	}
}

// correct writes what evidence says about a delivery that has ended.
func (d *Dispatcher) correct(ctx context.Context, h *store.Record, delivery *store.Delivery, e fallback.Evidence, c store.Correction, all *appliance) {
	if c.Status = e.Status; c.Status == "" || c.Status == delivery.Status {
		d.receivedAll(h, c.Receipts)
		all.add(c.Receipts, c.Suppress)
		return
	}
	if e.Status == notify.Failed {
		c.Because = fallback.Undelivered(e.Kind)
		if fallback.Unreachable(c.Because) {
			c.Strike = strikeOf(delivery, d.now())
		}
	}
	c.Supersedes = supersedes(&h.Notification, delivery, e.Status)
	if _, err := d.store.Correct(ctx, c, d.now()); err != nil {
		all.fail(err)
		return
	}
	d.receivedAll(h, c.Receipts)
}

// supersedes reports whether a step that turns out to have come so far makes those
// after it needless.
func supersedes(n *notify.Notification, delivery *store.Delivery, s notify.Status) bool {
	return n.Mode == notify.First && int(delivery.Step)+1 < len(n.Chain) && n.Chain[delivery.Step].Success.MetBy(s)
}

// taken reports whether a provider is known to have the message.
func taken(s notify.Status) bool { return notify.UntilAccepted.MetBy(s) }

// callsOf returns what is known of the calls of a delivery's round, in the order
// in which they were made.
func callsOf(h *store.Record, delivery *store.Delivery) []fallback.Call {
	var calls []fallback.Call
	at := map[uuid.UUID]int{}
	past := map[uuid.UUID]bool{} // calls of earlier rounds
	for _, a := range h.Attempts {
		switch {
		case a.DeliveryID != delivery.DeliveryID:
		case int(a.Turn) < int(delivery.Round)*turnsOfRound:
			past[a.ID] = true
		default:
			at[a.ID] = len(calls)
			calls = append(calls, fallback.Call{Outcome: a.Outcome})
		}
	}
	if _, recorded := at[delivery.ClaimID]; delivery.ClaimedBy != uuid.Nil && !recorded {
		at[delivery.ClaimID] = len(calls)
		calls = append(calls, fallback.Call{})
	}
	var stray fallback.Call // one whose record was lost
	lost := false
	for i := range h.Receipts {
		r := &h.Receipts[i]
		if r.DeliveryID != delivery.DeliveryID || past[r.Attempt] {
			continue
		}
		i, known := at[r.Attempt]
		switch {
		case known:
			calls[i].Receive(r.Status, r.Outcome)
		case delivery.Round > 0 && r.ReceivedAt.Before(delivery.StartedAt), delivery.Round > 0 && r.Attempt != uuid.Nil:
			// It can only be of an earlier round.
		case r.Attempt == uuid.Nil && len(calls) > 0:
			calls[len(calls)-1].Receive(r.Status, r.Outcome)
		default:
			stray.Receive(r.Status, r.Outcome)
			lost = true
		}
	}
	if lost {
		calls = append([]fallback.Call{stray}, calls...)
	}
	return calls
}

// unanswered is the attempt of a call that receipts settle before its own answer
// has come. The worker that is making it writes the answer over it.
func unanswered(delivery *store.Delivery, now time.Time) *store.Attempt {
	if delivery.ClaimedBy == uuid.Nil || delivery.Stop != "" { // a stop has changed its turn
		return nil
	}
	return &store.Attempt{
		DeliveryID: delivery.DeliveryID, Turn: delivery.Turn, ID: delivery.ClaimID, N: max(delivery.Calls, 1), Node: delivery.ClaimedBy,
		Account: delivery.Account, StartedAt: delivery.ClaimedAt, Duration: max(now.Sub(delivery.ClaimedAt), 0), Outcome: notify.Unknown,
		Detail: "a receipt came before the answer", PossibleDuplicate: delivery.Repeats > 0,
	}
}

// suppressionBy is the entry on the suppression list that receipts ask for: that of
// the one that asks for the longest.
func suppressionBy(delivery *store.Delivery, receipts []store.Receipt, now time.Time) *store.Suppression {
	var longest *store.Receipt
	for i := range receipts {
		r := &receipts[i]
		if r.Suppress && (longest == nil || longest.SuppressFor > 0 && (r.SuppressFor == 0 || r.SuppressFor > longest.SuppressFor)) {
			longest = r
		}
	}
	if longest == nil {
		return nil
	}
	s := &store.Suppression{
		Project: delivery.Project, Channel: delivery.Channel, Address: delivery.Address, Reason: string(longest.Outcome), Source: longest.Account, At: now,
	}
	if s.Reason == "" {
		s.Reason = string(notify.Suppressed)
	}
	if longest.SuppressFor > 0 {
		s.Until = now.Add(longest.SuppressFor)
	}
	return s
}

// received counts receipts that have been applied.
func (d *Dispatcher) received(h *store.Record, receipts []store.Receipt) {
	for i := range receipts {
		channel := h.Notification.Chain[receipts[i].Step].Channel
		d.cfg.Metrics.ReceiptApplied(channel, receipts[i].Status)
	}
}

func (d *Dispatcher) receivedAll(h *store.Record, ids []uuid.UUID) {
	for i := range h.Receipts {
		for _, id := range ids {
			if h.Receipts[i].ID == id {
				d.received(h, h.Receipts[i:i+1])
			}
		}
	}
}

// countParked tells the metrics how many receipts are of messages that nobody
// knows.
func (d *Dispatcher) countParked(ctx context.Context) error {
	n, err := d.store.ParkedReceipts(ctx, parkedMost)
	if err != nil {
		return err
	}
	d.cfg.Metrics.ReceiptsParked(n)
	if n == parkedMost {
		d.log.WarnContext(ctx, "many receipts are of messages that this service did not send", slog.Int("at_least", n))
	}
	return nil
}

const (
	parkedInterval = 15 * time.Second
	parkedMost     = 10_000
)
