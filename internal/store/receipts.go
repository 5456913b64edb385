package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Receipt is what a provider said later about a message that it took.
type Receipt struct {
	// ID is made by [Store.AddReceipts] where it is zero.
	ID uuid.UUID
	// DeliveryID is whose receipt it is; zero where only MessageID is known.
	DeliveryID
	// Attempt is the id of the attempt; zero where only the delivery is known.
	Attempt uuid.UUID
	// Account is the one that the report came through.
	Account string
	// MessageID is the provider's, at most 256 bytes; empty where it is not known.
	MessageID string
	// Status is sent, delivered, read or failed.
	Status notify.Status
	// Outcome is why it failed; empty where it did not.
	Outcome notify.Outcome
	// Code is the provider's own, at most 64 bytes; Detail at most 256.
	Code, Detail string
	// At is when it happened by the provider's clock, zero where it does not say;
	// ReceivedAt when we were told.
	At, ReceivedAt time.Time
	// AppliedAt is when it was weighed with what else is known of the delivery; zero
	// before that.
	AppliedAt time.Time
	// Suppress asks that the address be put on the suppression list, for good where
	// SuppressFor is 0.
	Suppress    bool
	SuppressFor time.Duration
}

// subject tells the messages of an account apart: by the provider's id where there
// is one, since a report that lacks our reference is of the same message.
func (r *Receipt) subject() string {
	if r.MessageID != "" {
		return r.MessageID
	}
	return fmt.Sprintf("%s %d %d %s", r.Notification, r.Step, r.Target, r.Attempt)
}

// A receipt for a notification that is not there any more is kept as one for a
// message that nobody knows.
const insertReceipts = `
insert into dispatcher.receipts (id, notification_id, step, target, attempt, account, subject, message_id, status, outcome, code, detail,
  at, received_at, look_at, suppress, suppress_for_s)
select r.id, d.notification_id, d.step, d.target, case when d.step is not null then r.attempt end, r.account, r.subject, r.message_id,
  r.status, r.outcome, r.code, r.detail, r.at, r.received_at, r.received_at, r.suppress, r.suppress_for_s
from unnest($1::uuid[], $2::uuid[], $3::int2[], $4::int2[], $5::uuid[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
  $11::text[], $12::text[], $13::timestamptz[], $14::timestamptz[], $15::bool[], $16::int8[])
  as r (id, notification_id, step, target, attempt, account, subject, message_id, status, outcome, code, detail, at, received_at,
    suppress, suppress_for_s)
left join dispatcher.deliveries d on d.notification_id = r.notification_id and d.step = r.step and d.target = r.target
on conflict (account, subject, status, code) do nothing`

// AddReceipts keeps receipts, all or none, and returns how many are new: one that
// says the same of the same message as an earlier one is dropped. They are durable
// when it returns, and applied to their deliveries soon after by any node that
// works. It waits for nobody who moves a delivery.
func (s *Store) AddReceipts(ctx context.Context, receipts []Receipt) (added int, err error) {
	if len(receipts) == 0 {
		return 0, nil
	}
	c := receiptColumnsOf(receipts)
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, insertReceipts, c.ids, c.notification, c.step, c.target, c.attempt, c.account, c.subject, c.message,
			c.status, c.outcome, c.code, c.detail, c.at, c.received, c.suppress, c.suppressFor)
		added = int(tag.RowsAffected())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("add receipts: %w", err)
	}
	return added, nil
}

// receiptColumns gathers rows column by column for unnest.
type receiptColumns struct {
	ids                            []uuid.UUID
	notification, attempt          []*uuid.UUID
	step, target                   []int16
	account, subject, status, code []string
	message, outcome, detail       []*string
	at                             []*time.Time
	received                       []time.Time
	suppress                       []bool
	suppressFor                    []*int64
}

func receiptColumnsOf(receipts []Receipt) *receiptColumns {
	c := &receiptColumns{}
	// In one order everywhere, so that two who are told the same do not wait crosswise.
	order := slices.SortedFunc(slices.Values(receipts), func(a, b Receipt) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.subject(), b.subject()), cmp.Compare(a.Status, b.Status),
			cmp.Compare(a.Code, b.Code))
	})
	for i := range order {
		r := &order[i]
		if r.ID == uuid.Nil {
			r.ID = uuid.Must(uuid.NewV7())
		}
		if r.Status == notify.Failed && r.Outcome == "" {
			r.Outcome = notify.RecipientUnavailable
		} else if r.Status != notify.Failed {
			r.Outcome = ""
		}
		var seconds *int64
		if r.Suppress && r.SuppressFor > 0 {
			n := max(int64(r.SuppressFor.Seconds()), 1)
			seconds = &n
		}
		c.ids = append(c.ids, r.ID)
		c.notification, c.attempt = append(c.notification, nullID(r.Notification)), append(c.attempt, nullID(r.Attempt))
		c.step, c.target = append(c.step, r.Step), append(c.target, r.Target)
		c.account, c.subject, c.status = append(c.account, r.Account), append(c.subject, r.subject()), append(c.status, string(r.Status))
		c.code, c.message = append(c.code, r.Code), append(c.message, nullText(r.MessageID))
		c.outcome, c.detail = append(c.outcome, nullText(string(r.Outcome))), append(c.detail, nullText(r.Detail))
		c.at, c.received = append(c.at, null(r.At)), append(c.received, r.ReceivedAt)
		c.suppress, c.suppressFor = append(c.suppress, r.Suppress), append(c.suppressFor, seconds)
	}
	return c
}

// nullID turns the zero id into NULL.
func nullID(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}
