package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestANodeThatLosesAConnectionWhileItStartsWorksEveryQueue(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"insert", "control", "leadership"} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			n := start(t, pgURL(t), registry(account(newScript(notify.SMS, ok))), func(s *setup) {
				s.prepare = func(d *dispatch.Dispatcher, _ *store.Store) {
					if err := d.LoseListener("river_" + topic); err != nil {
						t.Fatal(err)
					}
				}
			})
			// An envelope without deliveries for each queue.
			for _, c := range notify.Channels() {
				n.exec(t, "insert into dispatcher.river_job (kind, args, queue, max_attempts) values ('deliver', '{}', $1, 1)", c)
			}
			eventually(t, "every queue is worked", func() bool {
				return n.count(t, "select count(*) from dispatcher.river_job where state <> 'completed'") == 0
			})
			eventually(t, "the node stands for leader", func() bool { return n.count(t, "select count(*) from dispatcher.river_leader") == 1 })
		})
	}
}

// River sends one notification of new jobs at most within the cool-down.
func TestEachJobIsToldOf(t *testing.T) {
	t.Parallel()
	n := single(t, account(newScript(notify.SMS, ok)))
	listener, err := pgx.Connect(t.Context(), n.store.Pool().Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // a test's
	if _, err := listener.Exec(t.Context(), `listen "dispatcher.river_insert"`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := pgx.BeginFunc(t.Context(), n.store.Pool(), func(tx pgx.Tx) error {
			_, err := n.Queue().Insert(t.Context(), tx, []store.Envelope{{Version: 1, Project: "p", Channel: notify.SMS, Priority: notify.Low}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i := range 2 {
		if _, err := listener.WaitForNotification(ctx); err != nil {
			t.Fatalf("notification %d: %v", i+1, err)
		}
	}
}
