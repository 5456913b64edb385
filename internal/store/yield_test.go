package store_test

import (
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// stranger is a session that has begun a transaction with the given statements
// and does not end it until it is told to.
func (d *db) stranger(statements ...string) (leave func()) {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, sql := range append([]string{"begin"}, statements...) {
		if _, err := conn.Exec(d.t.Context(), sql); err != nil {
			d.t.Fatalf("%s: %v", sql, err)
		}
	}
	left := false
	leave = func() {
		if !left {
			left = true
			_, _ = conn.Exec(d.t.Context(), "rollback")
			_ = conn.Close(d.t.Context())
		}
	}
	d.t.Cleanup(leave)
	return leave
}

func quoted(d store.Delivery) string { return "'" + d.Notification.String() + "'" }

// soon fails the test if do takes as long as if it had waited for a lock to the
// end.
func soon(t *testing.T, do func()) {
	t.Helper()
	begun := time.Now()
	do()
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestALockedRowDelaysOnlyTheResultThatNeedsIt(t *testing.T) {
	t.Parallel()
	suppress := func(d store.Delivery, r *store.Result) {
		r.Suppress = &store.Suppression{Project: d.Project, Channel: d.Channel, Address: d.Address, At: now(), Until: now().Add(time.Hour)}
	}
	for name, c := range map[string]struct {
		lock  func(d store.Delivery) string
		adapt func(d store.Delivery, r *store.Result)
	}{
		"the delivery": {
			lock: func(d store.Delivery) string {
				return "select from dispatcher.deliveries where notification_id = " + quoted(d) + " for update"
			},
		},
		"the delivery, written": {
			lock: func(d store.Delivery) string {
				return "update dispatcher.deliveries set because = 'x' where notification_id = " + quoted(d)
			},
		},
		"the notification of a join": {
			lock: func(d store.Delivery) string {
				return "update dispatcher.notifications set reference = 'x' where id = " + quoted(d)
			},
			adapt: func(_ store.Delivery, r *store.Result) { r.Join = true },
		},
		"its wait": {
			lock: func(d store.Delivery) string {
				return "update dispatcher.waits set due = due where notification_id = " + quoted(d)
			},
			adapt: func(_ store.Delivery, r *store.Result) { r.Waited = true },
		},
		"its attempt": {
			lock: func(d store.Delivery) string {
				return "update dispatcher.attempts set detail = 'x' where notification_id = " + quoted(d)
			},
		},
		"its address's suppression": {
			lock: func(store.Delivery) string {
				return "update dispatcher.suppressions set reason = 'x'"
			},
			adapt: suppress,
		},
		"its address's strikes": {
			lock: func(store.Delivery) string {
				return "update dispatcher.address_strikes set strikes = 2"
			},
			adapt: func(d store.Delivery, r *store.Result) {
				r.Strike = &store.Strike{Project: d.Project, Channel: d.Channel, Address: d.Address, Account: "main", At: now()}
			},
		},
		"what follows it": {
			lock: func(d store.Delivery) string {
				return "select from dispatcher.deliveries where notification_id = " + quoted(d) + " and step = 1 for update"
			},
			adapt: func(d store.Delivery, r *store.Result) {
				next := d
				next.Step, next.Round = 1, 1
				r.Next = []store.Start{{Delivery: next}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			free := d.claim(d.accept(row())[0])
			bound := d.claim(d.accept(row())[0])
			d.exec(`insert into dispatcher.deliveries select (d).* from (
				select jsonb_populate_record(d, '{"step": 1, "status": "failed", "final": true, "finished_at": "2026-01-01T00:00:00Z", "claimed_by": null, "claimed_at": null}') d
				from dispatcher.deliveries d where notification_id = $1) s`, bound.Notification.ID)
			d.exec(`insert into dispatcher.waits select notification_id, step, target, turn, 2, false, now(), now(), now(), project, channel, 'receipt'
				from dispatcher.deliveries where notification_id = $1 and step = 0`, bound.Notification.ID)
			d.exec(`insert into dispatcher.suppressions values ('default', 'sms', $1, 'r', 's', now(), now())`, bound.Address[:])
			d.exec(`insert into dispatcher.address_strikes values (now(), now(), 1, 'default', 'sms', $1)`, bound.Address[:])
			results := []store.Result{outcome(free, notify.Accepted, sent), outcome(bound, notify.Accepted, sent)}
			if name == "its attempt" {
				d.exec(`insert into dispatcher.attempts (notification_id, step, target, turn, n, duration_us, started_at, id, node, account, outcome)
					values ($1, 0, 0, $2, 1, 0, now(), gen_random_uuid(), gen_random_uuid(), 'main', 'unknown')`, bound.Notification.ID, bound.Turn)
			}
			if c.adapt != nil {
				c.adapt(bound.Delivery, &results[1])
			}
			leave := d.stranger(c.lock(bound.Delivery))
			soon(t, func() {
				if got := d.record(results...); got[0] != store.Written || got[1] != store.Locked {
					t.Errorf("fates %v", got)
				}
			})
			if got := d.delivery(bound.DeliveryID); got.Turn != bound.Turn || got.Status != notify.Sending {
				t.Errorf("the locked one was written: %+v", got)
			}
			// While it lasts, later flushes go without it too.
			other := d.claim(d.accept(row())[0])
			if got := d.record(outcome(other, notify.Accepted, sent), results[1]); got[0] != store.Written || got[1] != store.Locked {
				t.Errorf("fates afterwards %v", got)
			}
			leave()
			if got := d.record(results[1]); got[0] != store.Written {
				t.Errorf("fate when the lock is gone %v", got)
			}
			if got := d.delivery(bound.DeliveryID); got.Status != notify.Sent {
				t.Errorf("then it is %s", got.Status)
			}
		})
	}
}

func TestARowThatSomebodyHasNotCommittedBlocksOneResultAlone(t *testing.T) {
	t.Parallel()
	d := open(t)
	deliveries := d.accept(row(), row(func(a *store.Acceptance) { a.Notification.To.SMS = "+15005550007" }))
	var results []store.Result
	for _, c := range deliveries {
		c := d.claim(c)
		r := outcome(c, notify.RecipientRejected, store.After{Status: notify.Failed, Final: true})
		r.Suppress = &store.Suppression{Project: c.Project, Channel: c.Channel, Address: c.Address, At: now()}
		results = append(results, r)
	}
	leave := d.stranger("insert into dispatcher.suppressions values ('default', 'sms', '\\x" + hex.EncodeToString(deliveries[0].Address[:]) + "', 'r', 's', now())")
	soon(t, func() {
		for _, batch := range [][]store.Result{results, results[:1]} {
			if _, err := d.Record(t.Context(), batch, nil); store.Classify(err) != store.Blocked {
				t.Errorf("%d results: class of %v is %d", len(batch), err, store.Classify(err))
			}
		}
		if got := d.record(results[1]); got[0] != store.Written {
			t.Errorf("fate of the other %v", got)
		}
	})
	leave()
	if got := d.record(results[0]); got[0] != store.Written {
		t.Errorf("fate when the lock is gone %v", got)
	}
}

func TestALockedTableIsNoFaultOfARow(t *testing.T) {
	t.Parallel()
	d := open(t)
	c := d.claim(d.accept(row())[0])
	queued := d.accept(row())[0]
	leave := d.stranger("lock table dispatcher.deliveries")
	_, record := d.Record(t.Context(), []store.Result{outcome(c, notify.Accepted, sent)}, nil)
	_, _, claim := d.Claim(t.Context(), d.node, []store.Claim{claimOf(queued)}, true)
	for what, err := range map[string]error{"record": record, "claim": claim} {
		if store.Classify(err) != store.Transient {
			t.Errorf("%s: class of %v is %d", what, err, store.Classify(err))
		}
	}
	leave()
	if got := d.record(outcome(c, notify.Accepted, sent)); got[0] != store.Written {
		t.Errorf("fate %v", got)
	}
}

func TestALockedDeliveryIsNeitherClaimedNorGone(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{true, false} {
		d := open(t)
		deliveries := d.accept(row(), row())
		leave := d.stranger("select from dispatcher.deliveries where notification_id = " + quoted(deliveries[0]) + " for update")
		claims := []store.Claim{claimOf(deliveries[0]), claimOf(deliveries[1])}
		soon(t, func() {
			claimed, locked, err := d.Claim(t.Context(), d.node, claims, durable)
			if err != nil || len(claimed) != 1 || claimed[0].DeliveryID != deliveries[1].DeliveryID {
				t.Errorf("durable %v: claimed %+v, %v", durable, claimed, err)
			}
			if len(locked) != 1 || locked[0] != deliveries[0].DeliveryID {
				t.Errorf("durable %v: locked %v", durable, locked)
			}
		})
		leave()
		if got := d.tryClaim(claims[0]); len(got) != 1 {
			t.Errorf("durable %v: claimed %d when the lock is gone", durable, len(got))
		}
	}
}

// Its answer was lost, and before it was asked again somebody locked the row.
func TestAClaimThatWasCommittedHoldsThoughTheRowIsLocked(t *testing.T) {
	t.Parallel()
	d := open(t)
	delivery := d.accept(row())[0]
	claim := claimOf(delivery)
	first := d.tryClaim(claim)
	leave := d.stranger("select from dispatcher.deliveries where notification_id = " + quoted(delivery) + " for update")
	again, locked, err := d.Claim(t.Context(), d.node, []store.Claim{claim}, true)
	if err != nil || len(locked) != 0 {
		t.Errorf("locked %v, %v", locked, err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("claimed again (-first +again):\n%s", diff)
	}
	other := claim
	other.ID = uuid.New()
	if got, locked, err := d.Claim(t.Context(), d.node, []store.Claim{other}, true); err != nil || len(got) != 0 || len(locked) != 1 {
		t.Errorf("another claim: %v, locked %v, %v", got, locked, err)
	}
	leave()
}

func TestALockedIdempotencyRecordHoldsUpNoRequest(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.accept(row(key("a", 1)))
	leave := d.stranger("delete from dispatcher.idempotency_keys")
	again, other := row(key("a", 1)), row(key("b", 1))
	accept := func() []store.Accepted {
		out, errs, err := d.Accept(t.Context(), []store.Acceptance{again, other, row()}, now(), time.Hour)
		if err = errors.Join(append(errs, err)...); err != nil {
			t.Fatal(err)
		}
		return out
	}
	soon(t, func() {
		if out := accept(); !out[0].Replayed {
			t.Errorf("the request whose record is there was answered %+v", out[0])
		}
	})
	leave()
	accept()
	if n := d.count("select count(*) from dispatcher.notifications where id = any($1)", []uuid.UUID{again.Notification.ID, other.Notification.ID}); n != 1 {
		t.Errorf("%d notifications, want the new key's alone", n)
	}
}

func TestALockedDeliveryIsAnnouncedLaterAndAlone(t *testing.T) {
	t.Parallel()
	d := open(t)
	bound, free := mustEnqueue(t, d.Pool(), hello), mustEnqueue(t, d.Pool(), hello)
	leave := d.stranger("select from dispatcher.deliveries where notification_id = '" + bound.String() + "' for update")
	announce := func(want int) {
		t.Helper()
		got, err := d.Announce(t.Context(), 200, now(), func(*notify.Notification, *store.Delivery) []string { return nil })
		if err != nil || len(got) != want {
			t.Errorf("announced %d, %v, want %d", len(got), err, want)
		}
	}
	soon(t, func() { announce(1) })
	if n := d.count("select count(*) from dispatcher.enqueued where notification_id = $1", free); n != 0 {
		t.Error("the free one is not announced")
	}
	announce(0)
	leave()
	announce(1)
}

func TestALockedDeliveryOfADeadNodeIsLeftToTheSweep(t *testing.T) {
	t.Parallel()
	d := open(t)
	deliveries := d.accept(row(), row())
	dead := d.node
	d.exec("insert into dispatcher.nodes values ($1, 1, 'dead', now(), now() - interval '1 hour')", dead)
	d.run(dead, deliveries...)
	leave := d.stranger("select from dispatcher.deliveries where notification_id = " + quoted(deliveries[0]) + " for update")
	soon(t, func() {
		if n, err := d.Bury(t.Context(), dead); n != 1 || err != nil {
			t.Errorf("requeued %d, %v", n, err)
		}
	})
	leave()
	if swept := d.sweep(100); swept.Requeued != 1 {
		t.Errorf("swept %+v", swept)
	}
}
