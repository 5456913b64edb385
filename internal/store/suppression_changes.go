package store

import (
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// SuppressionChange is a change to a suppression list without whose address it is,
// for metrics. Entries whose time is over are none.
type SuppressionChange struct {
	Channel notify.Channel
	Action  string // added, extended or lifted
	Reason  string // the entry's
	Source  string // the account that the entry came from; empty for an operator
	By      string // the operator who did it; empty for none
}

// listed gathers what a transaction changes of suppression lists. It is told once
// that is committed.
type listed []SuppressionChange

// read takes in what a statement that ends in [returningChange] returns.
func (l *listed) read(rows pgx.Rows) error {
	var c SuppressionChange
	_, err := pgx.ForEachRow(rows, []any{&c.Channel, &c.Action, &c.Reason, &c.Source, &c.By}, func() error {
		if c.Action != SuppressionExpired {
			*l = append(*l, c)
		}
		return nil
	})
	return err
}

// returningChange ends a statement that writes the history.
const returningChange = " returning channel, action, reason, case when reason = 'manual' then '' else source end, by_whom"

// tell tells what was committed.
func (s *Store) tell(l listed) {
	if s.changed != nil && len(l) > 0 {
		s.changed(l)
	}
}
