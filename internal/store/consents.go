package store

import (
	"context"
	"fmt"
	"time"

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
	Reason string // of a stop, such as "stop" or "complaint"
	At     time.Time
}

// A person who stops is heard by every project that wrote to the address, whoever
// it was for. What bars the address for a while becomes a bar for good.
const stopAddress = `
with concerned (project, address) as (
  select distinct d.project, d.address from dispatcher.deliveries d
  where d.address = $1 and d.channel = $2 and cardinality($3::text[]) = 0
  union select p, $1 from unnest($3::text[]) p where $1 is not null
  union select d.project, d.address from dispatcher.deliveries d
  where d.notification_id = $4 and d.step = $5 and d.target = $6 and d.channel = $2
    and (cardinality($3::text[]) = 0 or d.project = any($3::text[]))
), r (project, channel, address, reason, source, at, until, by_whom, why) as (
  select project, $2::text, address, $7::text, $8::text, $9::timestamptz, null::timestamptz, '', '' from concerned
)` + keepSuppressions

// A start lifts what a stop to the same account put there, and nothing else.
const startAddress = `
with lifted as (
  delete from dispatcher.suppressions s
  where s.channel = $2 and s.reason = $4 and s.source = $5
    and (cardinality($3::text[]) = 0 or s.project = any($3::text[])) and s.address = $1
  returning s.*
)
insert into dispatcher.suppression_events (at, project, channel, address, action, reason, source, why, until)
select $6, project, channel, address, 'lifted', reason, source, 'start', until from lifted` + returningChange

// AddConsents keeps what people said, in this order, all or none. It is in force
// for every claim that begins after it returned.
func (s *Store) AddConsents(ctx context.Context, consents []Consent) error {
	var changes listed
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		for i := range consents {
			if err := addConsent(ctx, tx, &consents[i], &changes); err != nil {
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

func addConsent(ctx context.Context, tx pgx.Tx, c *Consent, changes *listed) error {
	var address []byte
	if c.Address != [16]byte{} {
		address = c.Address[:]
	}
	projects := c.Projects
	if projects == nil {
		projects = []string{}
	}
	var rows pgx.Rows
	var err error
	if c.Stop {
		rows, err = tx.Query(ctx, stopAddress, address, string(c.Channel), projects, nullID(c.Delivery.Notification), c.Delivery.Step, c.Delivery.Target,
			c.Reason, c.Account, c.At)
	} else if address != nil {
		rows, err = tx.Query(ctx, startAddress, address, string(c.Channel), projects, ReasonStop, c.Account, c.At)
	}
	if err != nil || rows == nil {
		return err
	}
	return changes.read(rows)
}
