package httpapi

import (
	"cmp"
	"slices"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// receiptView is a receipt as it is shown.
type receiptView struct {
	Status            notify.Status  `json:"status" enum:"sent,delivered,read,failed"`
	At                *time.Time     `json:"at,omitempty" doc:"When it happened, by the provider's clock; absent where it does not say."`
	ReceivedAt        time.Time      `json:"received_at" doc:"When this service was told."`
	Account           string         `json:"account" doc:"The account that it was reported through."`
	Target            int            `json:"target,omitzero" doc:"Which address, counted from 0, where a step has several."`
	Outcome           notify.Outcome `json:"outcome,omitzero" enum:"unknown,throttled,provider_unavailable,recipient_unavailable,recipient_rejected,message_rejected,account_rejected,suppressed,expired" doc:"Why it failed."`
	ProviderCode      string         `json:"provider_code,omitzero"`
	ProviderMessageID string         `json:"provider_message_id,omitzero"`
	Detail            string         `json:"detail,omitzero"`
}

// The entries of a timeline that are no events.
const (
	entryStarted = "started"
	entryAttempt = "attempt"
	entryReceipt = "receipt"
)

// timelineEntry is one line of a notification's story.
type timelineEntry struct {
	At           time.Time      `json:"at"`
	Type         string         `json:"type" example:"started" doc:"What happened: started (a step), attempt (a call), receipt (what a provider said later), or a type of event."`
	Step         *int           `json:"step,omitempty" doc:"Which step of the chain, counted from 0; absent where it is about the whole."`
	Target       *int           `json:"target,omitempty" doc:"Which address of the step, counted from 0; absent where it is about all of them."`
	Channel      notify.Channel `json:"channel,omitzero" enum:"push,sms,whatsapp,email,slack,webhook" doc:"The step's."`
	Account      string         `json:"account,omitzero" doc:"Of an attempt, the one that was called; of a receipt, the one that it came through."`
	Because      string         `json:"because,omitzero" doc:"Why; of waiting the reason, of corrected the new status, of finished the notification's status."`
	Until        *time.Time     `json:"until,omitempty" doc:"When the wait that begins here is expected to end."`
	N            int            `json:"n,omitzero" doc:"Of an attempt: counts the calls to one target from 1."`
	Outcome      notify.Outcome `json:"outcome,omitzero" enum:"accepted,unknown,throttled,provider_unavailable,recipient_unavailable,recipient_rejected,message_rejected,account_rejected,suppressed,not_attempted,expired" doc:"Of an attempt what it came to, of a failed receipt why."`
	Status       notify.Status  `json:"status,omitzero" enum:"sent,delivered,read,failed" doc:"Of a receipt: what it says."`
	ProviderCode string         `json:"provider_code,omitzero"`
	Final        bool           `json:"final,omitzero" doc:"The notification ended with this event."`

	place int // among entries of one instant
}

// timeline tells a notification's whole story in order.
func timeline(r *store.Record) []timelineEntry {
	n := &r.Notification
	var out []timelineEntry
	about := func(e timelineEntry, id store.DeliveryID) timelineEntry {
		step, target := int(id.Step), int(id.Target)
		e.Step, e.Target = &step, &target
		if step < len(n.Chain) {
			e.Channel = n.Chain[step].Channel
		}
		return e
	}
	if n.SendAt.After(n.CreatedAt) {
		out = append(out, timelineEntry{At: n.CreatedAt, Type: string(notify.Waiting), Because: string(notify.WaitScheduled), Until: utc(n.SendAt), place: 1})
	}
	begun := map[int16]bool{}
	for _, d := range r.Deliveries {
		if begun[d.Step] {
			continue
		}
		begun[d.Step] = true
		e := about(timelineEntry{At: d.StartedAt, Type: entryStarted, Because: d.StartedWhy, place: 3}, d.DeliveryID)
		e.Target = nil
		out = append(out, e)
	}
	for _, a := range r.Attempts {
		out = append(out, about(timelineEntry{
			At: a.StartedAt, Type: entryAttempt, Account: a.Account, N: int(a.N), Outcome: a.Outcome, ProviderCode: a.ProviderCode, place: 4,
		}, a.DeliveryID))
	}
	for _, c := range r.Receipts {
		out = append(out, about(timelineEntry{
			At: c.ReceivedAt, Type: entryReceipt, Account: c.Account, Status: c.Status, Outcome: c.Outcome, ProviderCode: c.Code, place: 5,
		}, c.DeliveryID))
	}
	out = append(out, eventEntries(r, about)...)
	slices.SortStableFunc(out, func(a, b timelineEntry) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.place, b.place)) })
	for i := range out {
		out[i].At = out[i].At.UTC()
	}
	return out
}

// eventEntries are the events, whose own order stands: clocks of two nodes may
// disagree by a little, and the order of commits does not.
func eventEntries(r *store.Record, about func(timelineEntry, store.DeliveryID) timelineEntry) []timelineEntry {
	out := make([]timelineEntry, len(r.Events))
	var last time.Time
	for i := range r.Events {
		e := &r.Events[i]
		if last = latest(last, e.At); e.Type == store.EventAccepted {
			out[i] = timelineEntry{At: last, Type: e.Type}
			continue
		}
		entry := timelineEntry{At: last, Type: e.Type, Because: e.Because, Until: utc(e.Until), Final: e.Final, place: 2}
		if !e.Whole {
			entry = about(entry, e.ID)
		}
		out[i] = entry
	}
	return out
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func viewReceipt(c store.Receipt) receiptView {
	return receiptView{
		Status: c.Status, At: utc(c.At), ReceivedAt: c.ReceivedAt.UTC(), Account: c.Account, Target: int(c.Target), Outcome: c.Outcome,
		ProviderCode: c.Code, ProviderMessageID: c.MessageID, Detail: c.Detail,
	}
}
