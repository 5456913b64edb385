package dispatch_test

import (
	"context"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// fetched makes it look as if a node had fetched every job, so long ago, and had
// never been told.
func fetched(t *testing.T, ago string) func(*setup) {
	t.Helper()
	return func(s *setup) {
		s.prepare = func(d *dispatch.Dispatcher, s *store.Store) {
			_, err := s.Pool().Exec(context.WithoutCancel(t.Context()), `
				update dispatcher.river_job set state = 'running', attempt = 1, attempted_at = now() - $2::interval, attempted_by = array[$1::text]`,
				d.Node().String(), ago)
			if err != nil {
				t.Error(err)
			}
		}
	}
}

func TestJobsWhoseFetchWasNeverAnsweredAreGivenBack(t *testing.T) {
	t.Parallel()
	p := newScript(notify.SMS, ok)
	url := pgURL(t)
	api := start(t, url, registry(account(p)), func(s *setup) { s.Work = false })
	id := api.accept(t, notification(both, step(notify.SMS)))
	worker := start(t, url, registry(account(p)), fetched(t, "1 minute"))
	worker.until(t, id, "sent", func(r store.Record) bool { return r.Deliveries[0].Status == notify.Sent })
	if calls := len(p.sent()); calls != 1 {
		t.Errorf("%d calls, want 1", calls)
	}
}

func TestAJobUnderWayIsNotGivenBack(t *testing.T) {
	t.Parallel()
	gate := newDoor(t)
	p := newScript(notify.SMS, gate.then(notify.Accepted))
	n := single(t, account(p))
	id := n.accept(t, notification(both, step(notify.SMS)))
	eventually(t, "the call is under way", func() bool { return len(p.sent()) == 1 })
	if _, err := n.store.Pool().Exec(t.Context(), "update dispatcher.river_job set attempted_at = now() - interval '1 minute'"); err != nil {
		t.Fatal(err)
	}
	// The sweep runs as often as strays are looked for.
	beats := func() int {
		return n.count(t, "select extract(epoch from beat_at)::int from dispatcher.nodes where id = $1", n.Node())
	}
	first := beats()
	eventually(t, "strays were looked for", func() bool { return beats() >= first+2 })
	if got := n.count(t, "select count(*) from dispatcher.river_job where state = 'running'"); got != 1 {
		t.Errorf("%d jobs run, want 1", got)
	}
	gate.open()
	n.until(t, id, "sent", func(r store.Record) bool { return r.Deliveries[0].Status == notify.Sent })
}
