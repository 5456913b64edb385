package dispatch_test

import (
	"testing"

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
