package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Consent is what a person said, by way of an account, about being written to.
type Consent struct {
	Account string
	// Projects are those that may use the account; none means all, and then those
	// are concerned that wrote to the address through the channel.
	Projects []string
	Channel  notify.Channel
	// Address is whose word it is; zero where only Delivery is known.
	Address [16]byte
	// Delivery is the one that was answered; zero where it is not known. Its own
	// address and project are concerned.
	Delivery DeliveryID
	// Stop: nothing more may be sent; else what an earlier stop bars may be again.
	Stop   bool
	Reason string // such as "stop", "start" or "complaint"
	// Word tells it apart from everything else that was said by way of the account;
	// zero where nothing does, and then it counts as new.
	Word [16]byte
	// SaidAt is when the person said so, as far as the provider tells; zero for At.
	SaidAt time.Time
	At     time.Time // when it was heard
}

// addressOf finds out whose word it is where only the delivery is known.
const addressOf = `
select d.address from dispatcher.deliveries d
where d.notification_id = $1 and d.step = $2 and d.target = $3 and d.channel = $4
  and (cardinality($5::text[]) = 0 or d.project = any($5::text[]))`

// A word that was heard before is nothing new. A stop or a start that is older than
// the latest is heard, and changes nothing; a complaint is about a message, and no
// start takes it back.
const hearConsent = `
with heard as (
  insert into dispatcher.consents (said_at, heard_at, account, channel, reason, address, word)
  values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing returning said_at
)
select from heard where $5 <> all($8::text[]) or not exists (
  select from dispatcher.consents c
  where c.account = $3 and c.channel = $4 and c.address = $6 and c.reason = any($8::text[]) and c.said_at > heard.said_at)`

// A person who stops is heard by every project that wrote to the address, whoever
// it was for. What bars the address for a while becomes a bar for good, and beside
// one that is there for good the stop is remembered.
const stopAddress = `
with concerned (project, address) as (
  select distinct d.project, d.address from dispatcher.deliveries d
  where d.address = $1 and d.channel = $2 and cardinality($3::text[]) = 0
  union select p, $1 from unnest($3::text[]) p where $1 is not null
  union select d.project, d.address from dispatcher.deliveries d
  where d.notification_id = $4 and d.step = $5 and d.target = $6 and d.channel = $2
    and (cardinality($3::text[]) = 0 or d.project = any($3::text[]))
), remembered as (
  insert into dispatcher.stops as s (said_at, project, channel, address, account, reason)
  select $9, project, $2::text, address, $8::text, $7::text from concerned order by project, address
  on conflict (channel, address, project, account, reason) do update set said_at = greatest(s.said_at, excluded.said_at)
), r (project, channel, address, reason, source, at, until, by_whom, why) as (
  select project, $2::text, address, $7::text, $8::text, $10::timestamptz, null::timestamptz, '', '' from concerned
)` + keepSuppressions

// A start lifts what a stop to the same account put there, and nothing else.
const (
	forgetStops = `
delete from dispatcher.stops s
where s.channel = $2 and s.reason = $4 and s.account = $5
  and (cardinality($3::text[]) = 0 or s.project = any($3::text[])) and s.address = $1`

	startAddress = `
with lifted as (
  delete from dispatcher.suppressions s
  where s.channel = $2 and s.reason = $4 and s.source = $5
    and (cardinality($3::text[]) = 0 or s.project = any($3::text[])) and s.address = $1
  returning s.*
)
insert into dispatcher.suppression_events (at, project, channel, address, action, reason, source, why, until)
select $6, project, channel, address, 'lifted', reason, source, 'start', until from lifted` + returningChange
)

// restoreStops puts stops that still hold in the place of entries that were lifted.
// It is a statement of its own, after the one that lifts: a stop that was being kept
// has the entry locked, and can be seen only from then on.
const restoreStops = `
with r (project, channel, address, reason, source, at, until, by_whom, why) as (
  select distinct on (t.project) t.project, t.channel, t.address, t.reason, t.account, $4::timestamptz, null::timestamptz, '', ''
  from dispatcher.stops t
  where t.address = $1 and t.channel = $2 and (cardinality($3::text[]) = 0 or t.project = any($3::text[]))
    and not exists (select from dispatcher.suppressions s
      where s.project = t.project and s.channel = t.channel and s.address = t.address and s.until is null)
  order by t.project, t.said_at desc, t.account, t.reason
)` + keepSuppressions

// consentsLock is the class of the advisory locks under which what was said by way
// of an account is weighed, one at a time.
const consentsLock int32 = 0x736179 // "say"

// AddConsents keeps what people said, in this order, all or none. It is in force
// for every claim that begins after it returned.
func (s *Store) AddConsents(ctx context.Context, consents []Consent) error {
	var changes listed
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := lockAccounts(ctx, tx, consents); err != nil {
			return err
		}
		for i := range consents {
			if err := addConsent(ctx, tx, consents[i], &changes); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("add consents: %w", err)
	}
	s.tell(changes)
	return nil
}

func lockAccounts(ctx context.Context, tx pgx.Tx, consents []Consent) error {
	var accounts []string
	for i := range consents {
		accounts = append(accounts, consents[i].Account)
	}
	slices.Sort(accounts)
	for _, a := range slices.Compact(accounts) {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1, hashtext($2))", consentsLock, a); err != nil {
			return err
		}
	}
	return nil
}

func addConsent(ctx context.Context, tx pgx.Tx, c Consent, changes *listed) error {
	if c.Projects == nil {
		c.Projects = []string{}
	}
	known, err := c.address(ctx, tx)
	if err != nil || known == nil {
		return err
	}
	if c.Word == [16]byte{} {
		c.Word = uuid.New()
	}
	if c.SaidAt.IsZero() {
		c.SaidAt = c.At
	}
	news, err := tx.Exec(ctx, hearConsent, c.SaidAt, c.At, c.Account, string(c.Channel), c.Reason, known, c.Word[:], []string{ReasonStop, ReasonStart})
	if err != nil || news.RowsAffected() == 0 {
		return err
	}
	b := &pgx.Batch{}
	if c.Stop {
		var address []byte // that of the delivery alone counts where no other is named
		if c.Address != [16]byte{} {
			address = c.Address[:]
		}
		b.Queue(stopAddress, address, string(c.Channel), c.Projects, nullID(c.Delivery.Notification), c.Delivery.Step, c.Delivery.Target,
			c.Reason, c.Account, c.SaidAt, c.At).Query(changes.read)
	} else {
		b.Queue(forgetStops, known, string(c.Channel), c.Projects, ReasonStop, c.Account)
		b.Queue(startAddress, known, string(c.Channel), c.Projects, ReasonStop, c.Account, c.At).Query(changes.read)
		b.Queue(restoreStops, known, string(c.Channel), c.Projects, c.At).Query(changes.read)
	}
	return send(ctx, tx, b)
}

// address is whose word it is, nil where nobody knows: of a start the address has to
// be named.
func (c *Consent) address(ctx context.Context, tx pgx.Tx) (address []byte, err error) {
	if c.Address != [16]byte{} {
		return c.Address[:], nil
	}
	if !c.Stop || c.Delivery.Notification == uuid.Nil {
		return nil, nil
	}
	err = tx.QueryRow(ctx, addressOf, c.Delivery.Notification, c.Delivery.Step, c.Delivery.Target, string(c.Channel), c.Projects).Scan(&address)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return address, err
}
