package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// EnvelopeSize is the most deliveries one job carries.
const EnvelopeSize = 25

// EnvelopeVersion is the version of a job's arguments.
const EnvelopeVersion = 1

// Envelope is one job: deliveries of one project, channel and priority that
// became due together. Its JSON form is the job's arguments, which a node of the
// previous version must be able to read.
type Envelope struct {
	Version  int             `json:"v"`
	Project  string          `json:"p"`
	Channel  notify.Channel  `json:"c"`
	Priority notify.Priority `json:"-"` // the job's own
	Items    []Item          `json:"i"`
}

// Item is one delivery of an envelope: what a worker must know to refuse the
// call without asking the database.
type Item struct {
	ID     uuid.UUID `json:"n"`
	Step   int16     `json:"s,omitempty"`
	Target int16     `json:"t,omitempty"`
	Turn   int32     `json:"u,omitempty"`
	Ends   int64     `json:"e"`           // when the step's time is over, Unix milliseconds
	Pinned string    `json:"a,omitempty"` // the account that the step names
	Needs  string    `json:"k,omitempty"` // the provider that the target demands
	Scopes []string  `json:"o,omitempty"` // the target's own, relative to the account
	Retry  RetryKind `json:"r,omitempty"` // whether the call repeats an earlier one
	// Stay is the account of an earlier call that may have been taken, which this one
	// may repeat.
	Stay    string   `json:"y,omitempty"`
	Refused []string `json:"f,omitempty"` // accounts that turned it away just now
	Held    int64    `json:"h,omitempty"` // since when it has been held, Unix milliseconds; 0 for one that was not
}

// RetryKind says whether a call is a delivery's first.
type RetryKind int8

// The kinds.
const (
	FirstCall          RetryKind = 0
	RetryAfterFailure  RetryKind = 1
	RetryAfterThrottle RetryKind = 2
)

// Delivery names the item's delivery.
func (i Item) Delivery() DeliveryID { return DeliveryID{i.ID, i.Step, i.Target} }

// EndsAt is when the step's time is over.
func (i Item) EndsAt() time.Time { return time.UnixMilli(i.Ends) }

// HeldSince is since when the delivery was held until its job was made: by a
// breaker, a gate, a pause or a limit, with no call in between. It is zero for one
// that was not.
func (i Item) HeldSince() time.Time {
	if i.Held == 0 {
		return time.Time{}
	}
	return time.UnixMilli(i.Held)
}

// item returns the envelope's item for a delivery.
func (d *Delivery) item() Item {
	i := Item{
		ID: d.Notification, Step: d.Step, Target: d.Target, Turn: d.Turn, Ends: d.EndsAt.UnixMilli(), Pinned: d.Pinned,
		Needs: d.Provider, Scopes: d.Scopes, Refused: d.Refused,
	}
	if d.Repeats > 0 {
		i.Stay = d.Account
	}
	if !d.HeldSince.IsZero() {
		i.Held = d.HeldSince.UnixMilli()
	}
	switch {
	case d.Attempts == 0 && d.Throttles == 0:
	case d.Because == string(notify.Throttled):
		i.Retry = RetryAfterThrottle
	default:
		i.Retry = RetryAfterFailure
	}
	return i
}

// Start is a delivery to create: with a wait, or due now and queued.
type Start struct {
	Delivery
	Wait *Wait // Turn and identity are taken from the delivery
}

// pack groups items into envelopes of at most [EnvelopeSize], keeping order.
// assign is told which job each of them went into once ids are known.
type pack struct {
	envelopes []Envelope
	owners    [][]*int64
	open      map[packKey]int
}

type packKey struct {
	project  string
	channel  notify.Channel
	priority notify.Priority
}

func newPack() *pack { return &pack{open: map[packKey]int{}} }

// add puts a delivery into an envelope; its JobID is set by insert.
func (p *pack) add(d *Delivery) {
	project, channel, priority := d.Project, d.Channel, d.Priority
	key := packKey{project, channel, priority}
	i, ok := p.open[key]
	if !ok || len(p.envelopes[i].Items) == EnvelopeSize {
		i = len(p.envelopes)
		p.open[key] = i
		p.envelopes = append(p.envelopes, Envelope{
			Version: EnvelopeVersion, Project: project, Channel: channel, Priority: priority,
		})
		p.owners = append(p.owners, nil)
	}
	p.envelopes[i].Items = append(p.envelopes[i].Items, d.item())
	p.owners[i] = append(p.owners[i], &d.JobID)
}

// insert puts the envelopes into the queue and hands out their ids.
func (p *pack) insert(ctx context.Context, tx pgx.Tx, q Queue) error {
	if len(p.envelopes) == 0 {
		return nil
	}
	ids, err := q.Insert(ctx, tx, p.envelopes)
	if err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	for i, owners := range p.owners {
		for _, owner := range owners {
			*owner = ids[i]
		}
	}
	return nil
}

// appendStarts appends pointers to the elements of starts.
func appendStarts(to []*Start, starts []Start) []*Start {
	for i := range starts {
		to = append(to, &starts[i])
	}
	return to
}

// queueStarts packs those of starts that are due now.
func queueStarts(p *pack, starts []*Start) {
	for _, s := range starts {
		if s.Wait == nil {
			p.add(&s.Delivery)
		}
	}
}

const insertDeliveries = `
insert into dispatcher.deliveries (notification_id, step, target, targets, round, turn, priority, job_id,
  started_at, ends_at, expires_at, address, project, channel, status, started_because, because, pinned, provider, scopes)
select id, step, target, targets, round, turn, priority, job, started, ends, expires, address, project, channel, status, why, because,
  pinned, provider, string_to_array(scopes, ' ')
from (
  select unnest($1::uuid[]) as id, unnest($2::int2[]) as step, unnest($3::int2[]) as target,
    unnest($4::int2[]) as targets, unnest($5::int2[]) as round, unnest($6::int4[]) as turn,
    unnest($7::int2[]) as priority, unnest($8::int8[]) as job, unnest($9::timestamptz[]) as started,
    unnest($10::timestamptz[]) as ends, unnest($11::timestamptz[]) as expires, unnest($12::bytea[]) as address,
    unnest($13::text[]) as project, unnest($14::text[]) as channel, unnest($15::text[]) as status,
    unnest($16::text[]) as why, unnest($17::text[]) as because, unnest($18::text[]) as pinned,
    unnest($19::text[]) as provider, unnest($20::text[]) as scopes
) r
`

const renewDeliveries = insertDeliveries + renewDelivery

const insertWaits = `
insert into dispatcher.waits (notification_id, step, target, turn, priority, held, due, until, since, project, channel, reason, scope, ask_at)
select unnest($1::uuid[]), unnest($2::int2[]), unnest($3::int2[]), unnest($4::int4[]), unnest($5::int2[]),
  unnest($6::bool[]), unnest($7::timestamptz[]), unnest($8::timestamptz[]), unnest($9::timestamptz[]),
  unnest($10::text[]), unnest($11::text[]), unnest($12::text[]), unnest($13::text[]), unnest($14::timestamptz[])
on conflict (notification_id, step, target) do update set
  turn = excluded.turn, held = excluded.held, due = excluded.due, until = excluded.until, since = excluded.since,
  reason = excluded.reason, scope = excluded.scope, ask_at = excluded.ask_at`

// queueInserts adds the statements that create starts to b, by insert:
// [insertDeliveries] where none of them can be there, or [renewDeliveries].
func queueInserts(b *pgx.Batch, insert string, starts []*Start) {
	if len(starts) == 0 {
		return
	}
	b.Queue(insert,
		column(starts, func(s *Start) uuid.UUID { return s.Notification }),
		column(starts, func(s *Start) int16 { return s.Step }),
		column(starts, func(s *Start) int16 { return s.Target }),
		column(starts, func(s *Start) int16 { return s.Targets }),
		column(starts, func(s *Start) int16 { return s.Round }),
		column(starts, func(s *Start) int32 { return s.Turn }),
		column(starts, func(s *Start) int16 { return int16(s.Priority) }),
		column(starts, (*Start).job),
		column(starts, func(s *Start) time.Time { return s.StartedAt }),
		column(starts, func(s *Start) time.Time { return s.EndsAt }),
		column(starts, func(s *Start) time.Time { return s.ExpiresAt }),
		column(starts, func(s *Start) []byte { return s.Address[:] }),
		column(starts, func(s *Start) string { return s.Project }),
		column(starts, func(s *Start) string { return string(s.Channel) }),
		column(starts, (*Start).status),
		column(starts, func(s *Start) string { return s.StartedWhy }),
		column(starts, func(s *Start) *string { return nullText(s.Because) }),
		column(starts, func(s *Start) *string { return nullText(s.Pinned) }),
		column(starts, func(s *Start) *string { return nullText(s.Provider) }),
		column(starts, func(s *Start) *string { return nullText(strings.Join(s.Scopes, " ")) }), // scopes hold no space
	)
	var waits []Wait
	for _, s := range starts {
		if s.Wait != nil {
			w := *s.Wait
			w.DeliveryID, w.Turn, w.Project, w.Channel, w.Priority = s.DeliveryID, s.Turn, s.Project, s.Channel, s.Priority
			waits = append(waits, w)
		}
	}
	queueWaits(b, waits)
}

// job is the job that carries the delivery; nil where it waits.
func (s *Start) job() *int64 {
	if s.Wait != nil {
		return nil
	}
	return &s.JobID
}

// status is what the delivery begins with.
func (s *Start) status() string {
	if s.Wait != nil {
		return string(notify.Waiting)
	}
	return string(notify.Queued)
}

// queueWaits adds the statement that writes waits to b.
func queueWaits(b *pgx.Batch, waits []Wait) {
	if len(waits) == 0 {
		return
	}
	var (
		k                               keys
		priority                        []int16
		held                            []bool
		due, until, since               []time.Time
		ask                             []*time.Time
		project, channel, reason, scope []string
	)
	for _, w := range waits {
		k.add(w.DeliveryID, w.Turn)
		priority, held = append(priority, int16(w.Priority)), append(held, w.Held)
		if !w.Held || w.Until.After(w.Due) {
			w.Until = w.Due
		}
		due, until, since, ask = append(due, w.Due), append(until, w.Until), append(since, w.Since), append(ask, null(w.AskAt))
		project, channel = append(project, w.Project), append(channel, string(w.Channel))
		reason, scope = append(reason, string(w.Reason)), append(scope, w.Scope)
	}
	b.Queue(insertWaits, k.ids, k.step, k.target, k.turn, priority, held, due, until, since, project, channel, reason, scope, ask)
}

// Event is one line of a notification's story.
type Event struct {
	At      time.Time
	ID      DeliveryID
	Whole   bool // about the notification, not one delivery of it
	Project string
	Type    string
	Because string
	Until   time.Time // of a wait, when it is expected to end
	Final   bool      // the notification ends with it
}

const insertEvents = `
insert into dispatcher.events (at, notification_id, step, target, project, type, because, final, until)
select unnest($1::timestamptz[]), unnest($2::uuid[]), unnest($3::int2[]), unnest($4::int2[]), unnest($5::text[]),
  unnest($6::text[]), unnest($7::text[]), unnest($8::bool[]), unnest($9::timestamptz[])`

// queueEvents adds the events' lock and the events to b. They must be the last
// statements before the commit. What becomes of calls to status webhooks is no
// event: it would lead to further calls.
func queueEvents(b *pgx.Batch, events []Event) {
	shown := make([]*Event, 0, len(events))
	for i := range events {
		if !Hidden(events[i].Project) {
			shown = append(shown, &events[i])
		}
	}
	if len(shown) == 0 {
		return
	}
	b.Queue("select set_config('lock_timeout', $2, true), pg_advisory_xact_lock($1)", eventsLock, otherPatience.String())
	b.Queue(insertEvents,
		column(shown, func(e *Event) time.Time { return e.At }),
		column(shown, func(e *Event) uuid.UUID { return e.ID.Notification }),
		column(shown, func(e *Event) *int16 { return e.ofDelivery(&e.ID.Step) }),
		column(shown, func(e *Event) *int16 { return e.ofDelivery(&e.ID.Target) }),
		column(shown, func(e *Event) string { return e.Project }),
		column(shown, func(e *Event) string { return e.Type }),
		column(shown, func(e *Event) *string { return nullText(e.Because) }),
		column(shown, func(e *Event) bool { return e.Final }),
		column(shown, func(e *Event) *time.Time { return null(e.Until) }),
	)
}

// ofDelivery is v, or nil where the event is about the whole.
func (e *Event) ofDelivery(v *int16) *int16 {
	if e.Whole {
		return nil
	}
	return v
}

// send runs a batch in tx and returns the first error.
func send(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}
