package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const unknownAccounts = `
select k.id, k.step, k.target, a.account
from unnest($1::uuid[], $2::int2[], $3::int2[]) as k (id, step, target)
cross join lateral (
  select account from dispatcher.attempts
  where notification_id = k.id and step = k.step and target = k.target and outcome = 'unknown'
  order by turn desc limit 1) a`

// repeatWhereTaken names, as the account of each delivery whose next call may repeat
// an earlier one, the account that may have taken that: others may have been claimed
// for since, and have made no call, or turned it away.
func repeatWhereTaken(ctx context.Context, tx pgx.Tx, deliveries []Delivery) error {
	var k keys
	for i := range deliveries {
		if d := &deliveries[i]; d.Repeats > 0 {
			k.add(d.DeliveryID, d.Turn)
		}
	}
	if len(k.ids) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, unknownAccounts, k.ids, k.step, k.target)
	if err != nil {
		return fmt.Errorf("read accounts of unknown outcomes: %w", err)
	}
	at := map[DeliveryID]string{}
	var id DeliveryID
	var account string
	if _, err := pgx.ForEachRow(rows, []any{&id.Notification, &id.Step, &id.Target, &account}, func() error { at[id] = account; return nil }); err != nil {
		return fmt.Errorf("read accounts of unknown outcomes: %w", err)
	}
	for i := range deliveries {
		if account := at[deliveries[i].DeliveryID]; account != "" {
			deliveries[i].Account = account
		}
	}
	return nil
}
