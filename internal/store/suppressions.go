package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Suppression is an address that may not be written to. The address itself is not
// kept, only what [notify.Target.Hash] makes of it.
type Suppression struct {
	Project string
	Channel notify.Channel
	Address [16]byte
	// Reason is a word: an outcome, as recipient_rejected, or one of the constants.
	Reason string
	// Source is the account that it came from, or the operator.
	Source string
	At     time.Time
	Until  time.Time // zero for good
	// By and Why are who put it there by hand, and what for. They are kept in the
	// history alone.
	By, Why string
}

// Reasons that are no outcome of a call.
const (
	// ReasonStop: the person said so. A start of the same person lifts it.
	ReasonStop = "stop"
	// ReasonStart is no entry's, but that of the person's word.
	ReasonStart = "start"
	// ReasonManual: an operator said so.
	ReasonManual = "manual"
	// ReasonUnreachable: see [Strike].
	ReasonUnreachable = "unreachable"
)

// The actions of a [SuppressionEvent].
const (
	SuppressionAdded    = "added"
	SuppressionExtended = "extended" // it lasts longer now, perhaps for another reason
	SuppressionLifted   = "lifted"
	SuppressionExpired  = "expired"
)

// keepSuppressions ends a statement that has a table r of entries: it is the one
// way onto the list. What is there grows stricter only: an entry for good stays as
// it is, another is replaced by one that lasts longer. A stop that is remembered
// apart makes room for an operator's entry for good, which a start would lift with
// it. Whatever changes is told in
// the history; xmax is 0 in rows that did not exist before. An entry whose time is
// over may still be there, since retention comes by and by.
const keepSuppressions = `, wanted as materialized (
  select distinct on (project, channel, address) project, channel, address, reason, source, at, until, by_whom, why
  from r order by project, channel, address, until desc nulls first
), over as (
  select project, channel, address, s.reason, s.source, s.until
  from wanted join dispatcher.suppressions s using (project, channel, address) where s.until <= wanted.at
), kept as (
  insert into dispatcher.suppressions as s (project, channel, address, reason, source, created_at, until)
  select project, channel, address, reason, source, at, until from wanted order by project, channel, address
  on conflict (project, channel, address) do update set
    reason = excluded.reason, source = excluded.source, created_at = excluded.created_at, until = excluded.until
  where s.until is not null and (excluded.until is null or excluded.until > s.until)
    or s.until is null and excluded.until is null and excluded.reason = '` + ReasonManual + `' and exists (select from dispatcher.stops t
      where t.channel = s.channel and t.address = s.address and t.project = s.project and t.account = s.source and t.reason = s.reason)
  returning project, channel, address, s.xmax = 0 as added
)
insert into dispatcher.suppression_events (at, project, channel, address, action, reason, source, by_whom, why, until)
select over.until as at, project, channel, address, 'expired', over.reason, over.source, '', '', over.until
from kept join over using (project, channel, address)
union all
select w.at, project, channel, address, case when kept.added or over.until is not null then 'added' else 'extended' end,
  w.reason, w.source, w.by_whom, w.why, w.until
from kept join wanted w using (project, channel, address) left join over using (project, channel, address)
order by at` + returningChange

const insertSuppressions = `
with r as (
  select * from unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[], $8::text[], $9::text[])
    as r (project, channel, address, reason, source, at, until, by_whom, why)
)` + keepSuppressions

func queueSuppressions(b *pgx.Batch, list []*Suppression, changes *listed) {
	if len(list) == 0 {
		return
	}
	var (
		project, channel, reason, source, by, why []string
		address                                   [][]byte
		at                                        []time.Time
		until                                     []*time.Time
	)
	for _, s := range list {
		project, channel, address = append(project, s.Project), append(channel, string(s.Channel)), append(address, s.Address[:])
		reason, source, by, why = append(reason, s.Reason), append(source, s.Source), append(by, s.By), append(why, s.Why)
		at, until = append(at, s.At), append(until, null(s.Until))
	}
	b.Queue(insertSuppressions, project, channel, address, reason, source, at, until, by, why).Query(changes.read)
}

// SuppressionFilter says which entries are listed. Empty fields do not filter.
type SuppressionFilter struct {
	Project   string
	Channel   notify.Channel
	Addresses [][16]byte // any of them
	Reason    string
	// Before is the last entry of the page before, of which At, Channel and Address
	// are looked at; nil begins with the newest.
	Before *Suppression
	Limit  int
}

const selectSuppressions = `
select project, channel, address, reason, source, created_at, until from dispatcher.suppressions
where project = $1 and (until is null or until > clock_timestamp())`

// conditions are what is added to a statement that selects, each with one argument.
type conditions struct {
	sql  string
	args []any
}

// and adds a condition in which $ stands for its argument.
func (c *conditions) and(condition string, arg any) {
	c.args = append(c.args, arg)
	c.sql += " and " + strings.ReplaceAll(condition, "$", "$"+strconv.Itoa(len(c.args)))
}

func (c *conditions) limit(order string, n int) {
	c.args = append(c.args, min(max(n, 1), 200))
	c.sql += " order by " + order + " limit $" + strconv.Itoa(len(c.args))
}

// among adds what channel and addresses say. An address is looked for by the
// primary key, which begins with the channel.
func (c *conditions) among(channel notify.Channel, addresses [][16]byte) {
	if channel != "" {
		c.and("channel = $", string(channel))
	} else if len(addresses) > 0 {
		var all []string
		for _, known := range notify.Channels() {
			all = append(all, string(known))
		}
		c.and("channel = any($)", all)
	}
	if len(addresses) > 0 {
		c.and("address = any($)", hashes(addresses))
	}
}

func hashes(addresses [][16]byte) [][]byte {
	out := make([][]byte, len(addresses))
	for i := range addresses {
		out[i] = addresses[i][:]
	}
	return out
}

// Suppressions lists what is on a project's list now, newest first.
func (s *Store) Suppressions(ctx context.Context, f SuppressionFilter) ([]Suppression, error) {
	q := conditions{sql: selectSuppressions, args: []any{f.Project}}
	q.among(f.Channel, f.Addresses)
	if f.Reason != "" {
		q.and("reason = $", f.Reason)
	}
	if b := f.Before; b != nil {
		q.args = append(q.args, b.At, string(b.Channel), b.Address[:])
		n := len(q.args)
		q.sql += fmt.Sprintf(" and (created_at, channel, address) < ($%d, $%d, $%d)", n-2, n-1, n)
	}
	q.limit("created_at desc, channel desc, address desc", f.Limit)
	out, err := s.readSuppressions(ctx, q.sql, q.args...)
	if err != nil {
		return nil, fmt.Errorf("list suppressions: %w", err)
	}
	return out, nil
}

const suppressionsOf = `
select s.project, s.channel, s.address, s.reason, s.source, s.created_at, s.until
from unnest($2::text[], $3::bytea[]) as k (channel, address)
join dispatcher.suppressions s on s.project = $1 and s.channel = k.channel and s.address = k.address
where s.until is null or s.until > clock_timestamp()`

// Address is an address of one channel, as its hash.
type Address struct {
	Channel notify.Channel
	Hash    [16]byte
}

// Suppressed returns which of the addresses are on a project's list now, in no
// order.
func (s *Store) Suppressed(ctx context.Context, project string, addresses []Address) ([]Suppression, error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	var channel []string
	var hash [][]byte
	for i := range addresses {
		channel, hash = append(channel, string(addresses[i].Channel)), append(hash, addresses[i].Hash[:])
	}
	out, err := s.readSuppressions(ctx, suppressionsOf, project, channel, hash)
	if err != nil {
		return nil, fmt.Errorf("look for suppressions: %w", err)
	}
	return out, nil
}

func (s *Store) readSuppressions(ctx context.Context, sql string, args ...any) ([]Suppression, error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Suppression, error) {
		var s Suppression
		var address []byte
		var until *time.Time
		err := row.Scan(&s.Project, &s.Channel, &address, &s.Reason, &s.Source, &s.At, &until)
		copy(s.Address[:], address)
		s.Until = zero(until)
		return s, err
	})
}

// Suppress puts addresses of one project on its list, all or none. An entry that is
// there and lasts longer, or as long, stays as it is. It is in force for every claim
// that begins after it returned.
func (s *Store) Suppress(ctx context.Context, list []Suppression) error {
	var changes listed
	b := &pgx.Batch{}
	pointers := make([]*Suppression, len(list))
	for i := range list {
		pointers[i] = &list[i]
	}
	queueSuppressions(b, pointers, &changes)
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error { return send(ctx, tx, b) })
	if err != nil {
		return fmt.Errorf("suppress: %w", err)
	}
	s.tell(changes)
	return nil
}

const liftSuppression = `
with lifted as (
  delete from dispatcher.suppressions s
  where s.project = $1 and s.channel = $2 and s.address = $3 and (s.until is null or s.until > $4)
  returning s.*
), forgotten as (
  delete from dispatcher.address_strikes k using lifted
  where k.project = lifted.project and k.channel = lifted.channel and k.address = lifted.address
), overruled as (
  delete from dispatcher.stops t using lifted
  where t.project = lifted.project and t.channel = lifted.channel and t.address = lifted.address
    and t.account = lifted.source and t.reason = lifted.reason
)
insert into dispatcher.suppression_events (at, project, channel, address, action, reason, source, by_whom, why, until)
select $4, project, channel, address, 'lifted', reason, source, $5, $6, until from lifted` + returningChange

// Lift takes an entry off a project's list, or returns [ErrNotFound]. What was
// counted against the address is forgotten too. Where its person has said stop
// besides, and the entry was another one, that takes its place. Deliveries that
// ended because of the entry stay as they are.
func (s *Store) Lift(ctx context.Context, project string, a Address, by, why string, now time.Time) error {
	var changes listed
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(liftSuppression, project, string(a.Channel), a.Hash[:], now, by, why).Query(changes.read)
		b.Queue(restoreStops, a.Hash[:], string(a.Channel), []string{project}, now).Query(changes.read)
		return send(ctx, tx, b)
	})
	if err == nil && len(changes) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("lift suppression: %w", err)
	}
	s.tell(changes)
	return nil
}

// SuppressionEvent is a change to the suppression list.
type SuppressionEvent struct {
	ID     int64
	Action string
	// Suppression is the entry as it became or, where it is gone, was. Its At is the
	// instant of the change, its By and Why are of the change.
	Suppression
}

// SuppressionHistory returns changes to a project's list, newest first, those before
// the given id where that is not 0. Channel and addresses filter where they are not
// empty.
func (s *Store) SuppressionHistory(ctx context.Context, f SuppressionFilter, before int64) ([]SuppressionEvent, error) {
	q := conditions{
		sql: `select id, action, project, channel, address, reason, source, at, until, by_whom, why
			from dispatcher.suppression_events where project = $1`,
		args: []any{f.Project},
	}
	q.among(f.Channel, f.Addresses)
	if before > 0 {
		q.and("id < $", before)
	}
	q.limit("id desc", f.Limit)
	rows, err := s.pool.Query(ctx, q.sql, q.args...)
	if err != nil {
		return nil, fmt.Errorf("read changes of suppressions: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (SuppressionEvent, error) {
		var e SuppressionEvent
		var address []byte
		var until *time.Time
		err := row.Scan(&e.ID, &e.Action, &e.Project, &e.Channel, &address, &e.Reason, &e.Source, &e.At, &until, &e.By, &e.Why)
		copy(e.Address[:], address)
		e.Until = zero(until)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read changes of suppressions: %w", err)
	}
	return out, nil
}
