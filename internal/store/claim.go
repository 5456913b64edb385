package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Claim asks for the right to make one call.
type Claim struct {
	DeliveryID
	Turn    int32
	Account string
	// ID is made before the first try, so that a claim may be repeated when its
	// answer was lost, and becomes the attempt's.
	ID uuid.UUID
}

// Claimed is a delivery that may be called now, with what the call needs.
type Claimed struct {
	Delivery
	Notification notify.Notification
	// ContentSize is the size of the content as it is stored, in bytes, where that
	// is more than 32 KiB and was not read with the rest; see [Store.Content]. Else 0.
	ContentSize int
	// Invalid says why the stored notification cannot be read; nil if it can. Its
	// chain then has at least the delivery's step.
	Invalid error
}

// claimedContent is a content that is small, or the size of one that is not. What
// takes less than 2 kB on its page needs no closer look.
const claimedContent = `case when pg_column_size(n.content) < 2000 or octet_length(n.content::text) <= 32768 then n.content end,
  case when pg_column_size(n.content) < 2000 or octet_length(n.content::text) <= 32768 then 0 else octet_length(n.content::text) end`

const (
	claimFew  = claimHead + "d.notification_id = any($1) and n.id = any($1) and " + claimTail
	claimMany = claimHead + claimTail
)

const claimHead = `
update dispatcher.deliveries d
set status = 'sending', claimed_by = $6, claim_id = k.claim, claimed_at = clock_timestamp(),
  account = k.account, calls = case when d.claim_id = k.claim then calls else least(calls + 1, 32767) end
from (
  select unnest($1::uuid[]) as id, unnest($2::int2[]) as step, unnest($3::int2[]) as target, unnest($4::int4[]) as turn,
    unnest($5::text[]) as account, unnest($7::uuid[]) as claim
) k join dispatcher.notifications n on n.id = k.id
where `

const claimTail = `d.notification_id = k.id and d.step = k.step and d.target = k.target and d.turn = k.turn
  and (d.claimed_by is null or d.claim_id = k.claim) and not d.final and d.stop is null and d.expires_at > clock_timestamp()
  and not exists (select from dispatcher.suppressions s
    where s.project = d.project and s.channel = d.channel and s.address = d.address
      and (s.until is null or s.until > clock_timestamp()) offset 0) -- looked up for each
  and not exists (select from dispatcher.cancel_requests r where r.notification_id = d.notification_id offset 0)
returning ` + deliveryColumnsOfD + `, ` + claimedContent + `, n.mode, n.chain, n.recipient, '{}'::json, n.reference, n.metadata, n.trace,
  n.created_at, n.send_at`

const claimedBefore = `
select ` + deliveryColumnsOfD + `, ` + claimedContent + `, n.mode, n.chain, n.recipient, '{}'::json, n.reference, n.metadata, n.trace, n.created_at, n.send_at
from unnest($1::uuid[], $2::int2[], $3::int2[], $4::int4[], $6::uuid[]) as k (id, step, target, turn, claim)
join dispatcher.deliveries d on d.notification_id = k.id and d.step = k.step and d.target = k.target and d.turn = k.turn
  and d.claimed_by = $5 and d.claim_id = k.claim
join dispatcher.notifications n on n.id = d.notification_id
where d.notification_id = any($1)`

// Claim marks deliveries as being sent by node and returns those that may be: the
// turn still holds, and nothing has claimed, ended, stopped, suppressed or
// outlived them. locked are those that somebody else has locked, about whom nothing
// can be said now. durable says that the mark must survive a crash of Postgres;
// without it the mark is written but not waited for.
func (s *Store) Claim(ctx context.Context, node uuid.UUID, claims []Claim, durable bool) (claimed []Claimed, locked []DeliveryID, err error) {
	// In one order everywhere, so that two nodes do not lock crosswise.
	claims = slices.SortedFunc(slices.Values(claims), func(a, b Claim) int { return compareIDs(a.DeliveryID, b.DeliveryID) })
	err = s.yielding(func(wary bool) (err error) {
		if wary {
			claimed, locked, err = s.claimFree(ctx, node, claims, durable)
			return err
		}
		claimed, err = s.claimAll(ctx, node, claims, durable)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("claim: %w", err)
	}
	return claimed, locked, nil
}

// claimAll is Claim in one round trip.
func (s *Store) claimAll(ctx context.Context, node uuid.UUID, claims []Claim, durable bool) (claimed []Claimed, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	b := &pgx.Batch{}
	queueClaims(b, node, claims, durable, &claimed)
	// The end of the batch is its commit: rows that were read before it are no
	// claims yet.
	return claimed, s.sendAlone(ctx, b)
}

// claimFree is Claim of what nobody else has locked.
func (s *Store) claimFree(ctx context.Context, node uuid.UUID, claims []Claim, durable bool) (claimed []Claimed, locked []DeliveryID, err error) {
	err = s.inFlush(ctx, freshPlan, func(ctx context.Context, tx pgx.Tx) error {
		var k keys
		for _, c := range claims {
			k.add(c.DeliveryID, c.Turn)
		}
		away, err := collectIDs(tx.Query(ctx, lockedDeliveries, k.ids, k.step, k.target))
		if err != nil {
			return err
		}
		var free, taken []Claim
		for _, c := range claims {
			if away[c.DeliveryID] {
				taken = append(taken, c)
			} else {
				free = append(free, c)
			}
		}
		var before []Claimed
		b := &pgx.Batch{}
		queueClaims(b, node, free, durable, &claimed)
		if len(taken) > 0 {
			s.wary.begin()
			queueClaimedBefore(b, node, taken, &before)
		}
		if err := send(ctx, tx, b); err != nil {
			return err
		}
		for _, c := range before {
			delete(away, c.DeliveryID)
		}
		claimed, locked = append(claimed, before...), slices.Collect(maps.Keys(away))
		return nil
	})
	return claimed, locked, err
}

// queueClaimedBefore adds the statement that reads those of claims which an
// earlier try has committed, although its answer was lost: whoever has locked
// their rows now, they are claimed.
func queueClaimedBefore(b *pgx.Batch, node uuid.UUID, claims []Claim, out *[]Claimed) {
	var k keys
	var ids []uuid.UUID
	for _, c := range claims {
		k.add(c.DeliveryID, c.Turn)
		ids = append(ids, c.ID)
	}
	b.Queue(claimedBefore, k.ids, k.step, k.target, k.turn, node, ids).Query(func(rows pgx.Rows) (err error) {
		*out, err = readClaimed(rows, len(claims))
		return err
	})
}

// queueClaims adds the statements that claim to b, the claimed to out.
func queueClaims(b *pgx.Batch, node uuid.UUID, claims []Claim, durable bool, out *[]Claimed) {
	var k keys
	var account []string
	var ids []uuid.UUID
	for _, c := range claims {
		k.add(c.DeliveryID, c.Turn)
		account, ids = append(account, c.Account), append(ids, c.ID)
	}
	plan, claim := freshPlan, claimMany
	if fewRows(len(claims)) {
		plan, claim = keptPlan, claimFew
	}
	settings := "select set_config('lock_timeout', $1, true)" + plan.asQuery()
	if !durable {
		settings += ", set_config('synchronous_commit', 'off', true)"
	}
	b.Queue(settings, rowPatience.String())
	b.Queue(claim, k.ids, k.step, k.target, k.turn, account, node, ids).Query(func(rows pgx.Rows) (err error) {
		*out, err = readClaimed(rows, len(claims))
		return err
	})
}

// compareIDs orders deliveries as their primary key does.
func compareIDs(a, b DeliveryID) int {
	return cmp.Or(bytes.Compare(a.Notification[:], b.Notification[:]), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Target, b.Target))
}

// deliveryColumnsOfD lists the columns in the order of [deliveryRow.fields].
const deliveryColumnsOfD = `d.notification_id, d.step, d.target, d.targets, d.round, d.turn, d.project, d.channel, d.priority,
  d.address, d.status, d.final, d.because, d.stop, d.started_because, d.account, d.attempts, d.throttles, d.crashes,
  d.repeats, d.calls, d.job_id, d.started_at, d.ends_at, d.expires_at, d.claimed_by, d.claim_id, d.claimed_at, d.finished_at,
  d.pinned, d.provider, d.scopes`

// deliveryRow receives the columns of [deliveryColumnsOfD], one row after another:
// what is NULL becomes zero.
type deliveryRow struct {
	Delivery
	address pgtype.DriverBytes
}

func (r *deliveryRow) fields() []any {
	d := &r.Delivery
	return []any{
		&d.Notification, &d.Step, &d.Target, &d.Targets, &d.Round, &d.Turn, &d.Project, (*string)(&d.Channel), (*int16)(&d.Priority),
		&r.address, (*string)(&d.Status), &d.Final, (*zeronull.Text)(&d.Because), (*zeronull.Text)(&d.Stop), &d.StartedWhy,
		(*zeronull.Text)(&d.Account), &d.Attempts, &d.Throttles, &d.Crashes, &d.Repeats, &d.Calls, (*zeronull.Int8)(&d.JobID),
		&d.StartedAt, &d.EndsAt, &d.ExpiresAt, (*zeronull.UUID)(&d.ClaimedBy), (*zeronull.UUID)(&d.ClaimID),
		(*zeronull.Timestamptz)(&d.ClaimedAt), (*zeronull.Timestamptz)(&d.FinishedAt), (*zeronull.Text)(&d.Pinned),
		(*zeronull.Text)(&d.Provider), &d.Scopes,
	}
}

func (r *deliveryRow) delivery() Delivery {
	d := r.Delivery
	copy(d.Address[:], r.address)
	return d
}

// notificationRow receives the columns of a notification that are not its
// deliveries' too.
type notificationRow struct {
	notify.Notification
	chain, to, content pgtype.DriverBytes
	metadata           []byte
}

func (r *notificationRow) fields() []any {
	n := &r.Notification
	return []any{
		(*string)(&n.Mode), &r.chain, &r.to, &r.content, (*zeronull.Text)(&n.Reference), &r.metadata, (*zeronull.Text)(&n.Trace),
		&n.CreatedAt, &n.SendAt,
	}
}

func (r *notificationRow) notification() (notify.Notification, error) {
	n := r.Notification
	n.Metadata = r.metadata
	err := notify.Decode(r.chain, &n.Chain)
	if err == nil {
		err = notify.Decode(r.to, &n.To)
	}
	if err == nil {
		err = notify.Decode(r.content, &n.Content)
	}
	return n, err
}

// readClaimed reads what was claimed, at most so many.
func readClaimed(rows pgx.Rows, most int) ([]Claimed, error) {
	out := make([]Claimed, 0, most) // which are large
	var d deliveryRow
	var n notificationRow
	var content pgtype.DriverBytes
	var size int
	_, err := pgx.ForEachRow(rows, append(append(d.fields(), &content, &size), n.fields()...), func() error {
		if size == 0 {
			n.content = content
		}
		out = append(out, Claimed{Delivery: d.delivery(), ContentSize: size})
		c := &out[len(out)-1]
		n.ID, n.Project, n.Priority, n.ExpiresAt = c.Delivery.Notification, c.Project, c.Priority, c.ExpiresAt
		n.Round = int(c.Round)
		if c.Notification, c.Invalid = n.notification(); c.Invalid != nil {
			lengthen(&c.Notification, &c.Delivery)
		}
		return nil
	})
	return out, err
}

// lengthen makes the chain of a notification that could not be read long enough
// for a delivery of it, so that the delivery can be brought to its end.
func lengthen(n *notify.Notification, d *Delivery) {
	for len(n.Chain) <= int(d.Step) {
		n.Chain = append(n.Chain, notify.Step{Channel: d.Channel})
	}
}
