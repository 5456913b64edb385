package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestARepeatIsForTheAccountThatMayHaveTakenTheMessage(t *testing.T) {
	t.Parallel()
	for name, requeue := range map[string]func(d *db, r *store.Result){
		"when its wait is over": func(d *db, r *store.Result) {
			d.record(*r)
			if woken, err := d.Wake(d.t.Context(), 10, nil); err != nil || woken.Moved != 1 {
				d.t.Fatalf("woke %+v, %v", woken, err)
			}
		},
		"when its wait was lost": func(d *db, r *store.Result) {
			d.record(*r)
			d.exec("delete from dispatcher.waits")
			d.exec("update dispatcher.deliveries set status = 'queued'")
			if swept, err := d.Sweep(d.t.Context(), uuid.Nil, 100, now()); err != nil || swept.Requeued != 1 {
				d.t.Fatalf("swept %+v, %v", swept, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			delivery := d.accept(row())[0]
			call := func(account string, o notify.Outcome, repeats int) store.Result {
				t.Helper()
				claim := claimOf(delivery)
				claim.Account = account
				claimed := d.tryClaim(claim)
				if len(claimed) != 1 {
					t.Fatal("not claimed")
				}
				r := outcome(claimed[0], o, store.After{Status: notify.Waiting, Attempts: 1, Repeats: repeats, Because: string(o)})
				r.Wait = waitOf(claimed[0].Delivery, notify.WaitBackoff, now().Add(-time.Second))
				delivery = claimed[0].Delivery
				delivery.Turn++
				return r
			}
			d.record(call("older", notify.Unknown, 1))
			d.record(call("taken", notify.Unknown, 1))
			r := call("busy", notify.Throttled, 1)
			d.exec("delete from dispatcher.river_job")
			requeue(d, &r)
			if got := d.envelopes(); len(got) != 1 || got[0].Items[0].Stay != "taken" {
				t.Errorf("queued %+v, want a repeat that stays with taken", got)
			}
		})
	}
}
