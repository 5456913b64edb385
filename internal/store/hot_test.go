package store_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// What is updated for every delivery must touch no index, also when one statement
// claims all rows of a page. Nothing here needs a page to be tidied between two
// updates, which any open transaction of the server would put off.
func TestClaimAndRecordAreHotUpdates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		count  int
		record bool
	}{{"claimed and recorded", 8, true}, {"claimed in one statement", 500, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			var claims []store.Claim
			rows := make([]store.Acceptance, c.count)
			for i := range rows {
				rows[i] = row()
				claims = append(claims, claimOf(rows[i].Starts[0].Delivery))
			}
			if _, _, err := d.Accept(t.Context(), rows, now(), time.Hour); err != nil {
				t.Fatal(err)
			}
			want := int64(c.count)
			var results []store.Result
			for _, claimed := range d.tryClaim(claims...) {
				results = append(results, outcome(claimed, notify.Accepted, sent))
			}
			if c.record {
				d.record(results...)
				want *= 2
			}
			if updated, hot := d.updates(want); updated != want || hot != want {
				t.Errorf("%d of %d updates were HOT, want %d", hot, updated, want)
			}
		})
	}
}

// The plan of a flush is made once for a connection, perhaps while a table has one
// page only, and stays when it has grown.
func TestAFlushGoesByIndexHoweverSmallTheTablesAre(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.accept(row())
	d.exec("vacuum analyze dispatcher.notifications, dispatcher.deliveries, dispatcher.attempts, dispatcher.waits")
	scans := func() int64 {
		d.flushStats()
		return d.count(`select sum(seq_scan) from pg_stat_user_tables
			where schemaname = 'dispatcher' and relname in ('notifications', 'deliveries', 'attempts', 'waits')`)
	}
	before := scans()
	a := row()
	if _, _, err := d.Accept(t.Context(), []store.Acceptance{a}, now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	claimed := d.claim(a.Starts[0].Delivery)
	r := outcome(claimed, notify.ProviderUnavailable, store.After{Status: notify.Waiting, Attempts: 1})
	r.Wait = waitOf(claimed.Delivery, notify.WaitBackoff, now())
	d.record(r)
	if after := scans(); after != before {
		t.Errorf("%d tables were read from end to end", after-before)
	}
}

// updates reads how many updates of deliveries there were, and how many of them
// were HOT, once at least so many were reported.
func (d *db) updates(least int64) (updated, hot int64) {
	d.t.Helper()
	for deadline := time.Now().Add(time.Minute); updated < least && time.Now().Before(deadline); {
		d.flushStats()
		err := d.Pool().QueryRow(d.t.Context(), `select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables
			where schemaname = 'dispatcher' and relname = 'deliveries'`).Scan(&updated, &hot)
		if err != nil {
			d.t.Fatal(err)
		}
	}
	return updated, hot
}

// flushStats lets every idle connection of the pool report its counters.
func (d *db) flushStats() {
	d.t.Helper()
	for _, c := range d.Pool().AcquireAllIdle(d.t.Context()) {
		_, err := c.Exec(d.t.Context(), "select pg_stat_force_next_flush()")
		c.Release()
		if err != nil {
			d.t.Fatal(err)
		}
	}
}
