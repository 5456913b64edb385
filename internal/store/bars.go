package store

import (
	"context"
	"fmt"
)

// Bar is what may keep a delivery from being claimed although it has not moved.
type Bar struct {
	Suppressed bool   // its address is on the suppression list
	Reason     string // of the entry there
	Expired    bool   // by the database's clock
	Canceling  bool   // its notification is to be canceled, which has not been done yet
}

const readBars = `
select (select s.reason from dispatcher.suppressions s
  where s.project = $1 and s.channel = $2 and s.address = $3 and (s.until is null or s.until > clock_timestamp())),
  $4::timestamptz <= clock_timestamp(),
  exists (select from dispatcher.cancel_requests r where r.notification_id = $5)`

// Bars reads what bars a delivery from being claimed now.
func (s *Store) Bars(ctx context.Context, d *Delivery) (Bar, error) {
	var b Bar
	var reason *string
	err := s.pool.QueryRow(ctx, readBars, d.Project, string(d.Channel), d.Address[:], d.ExpiresAt, d.Notification).Scan(&reason, &b.Expired, &b.Canceling)
	if err != nil {
		return Bar{}, fmt.Errorf("read what bars a claim: %w", err)
	}
	b.Suppressed, b.Reason = reason != nil, zero(reason)
	return b, nil
}
