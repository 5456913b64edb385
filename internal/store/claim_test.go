package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestAClaimGivesWhatTheCallNeeds(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, durable := range []bool{true, false} {
		a := row()
		delivery := d.accept(a)[0]
		want := claimOf(delivery)
		got, _, err := d.Claim(t.Context(), d.node, []store.Claim{want}, durable)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 {
			t.Fatalf("durable %v: %d claims, want 1", durable, len(got))
		}
		c := got[0]
		if c.Invalid != nil {
			t.Error(c.Invalid)
		}
		if diff := cmp.Diff(a.Notification, c.Notification); diff != "" {
			t.Errorf("notification (-written +claimed):\n%s", diff)
		}
		if c.Status != notify.Sending || c.ClaimedBy != d.node || c.ClaimID != want.ID || c.Account != "main" || c.Calls != 1 || c.ClaimedAt.IsZero() {
			t.Errorf("claimed %+v", c.Delivery)
		}
		if diff := cmp.Diff(c.Delivery, d.delivery(c.DeliveryID)); diff != "" {
			t.Errorf("delivery (-claimed +stored):\n%s", diff)
		}
	}
}

func TestAClaimIsGivenOncePerTurnAndRepeatedToItsOwnerOnly(t *testing.T) {
	t.Parallel()
	d := open(t)
	delivery := d.accept(row())[0]
	mine := claimOf(delivery)
	for i := range 3 {
		if got := d.tryClaim(mine); len(got) != 1 || got[0].Calls != 1 {
			t.Fatalf("claim %d: %+v", i, got)
		}
	}
	if got := d.tryClaim(claimOf(delivery)); len(got) != 0 {
		t.Errorf("claimed twice: %+v", got)
	}
	c := d.tryClaim(mine)[0]
	r := outcome(c, notify.ProviderUnavailable, store.After{Status: notify.Waiting, Attempts: 1})
	r.Wait = waitOf(c.Delivery, notify.WaitBackoff, now())
	d.record(r)
	if got := d.tryClaim(mine); len(got) != 0 {
		t.Error("claimed with the turn before")
	}
	mine.Turn++
	if got := d.tryClaim(store.Claim{DeliveryID: mine.DeliveryID, Turn: mine.Turn, Account: "b", ID: uuid.New()}); len(got) != 1 || got[0].Calls != 2 {
		t.Errorf("second turn: %+v", got)
	}
}

func TestAClaimIsRefusedWhereNothingMayBeSent(t *testing.T) {
	t.Parallel()
	d := open(t)
	suppress := func(until string) func(store.Delivery) {
		return func(delivery store.Delivery) {
			d.exec(`insert into dispatcher.suppressions values ($1, $2, $3, 'test', 'test', now(), `+until+`)`,
				delivery.Project, string(delivery.Channel), delivery.Address[:])
		}
	}
	update := func(set string) func(store.Delivery) {
		return func(delivery store.Delivery) {
			d.exec("update dispatcher.deliveries set "+set+" where notification_id = $1", delivery.Notification)
		}
	}
	for _, c := range []struct {
		name    string
		prepare func(store.Delivery)
		want    int
	}{
		{"nothing against it", func(store.Delivery) {}, 1},
		{"canceled", update("stop = 'canceled'"), 0},
		{"acknowledged", update("stop = 'acknowledged'"), 0},
		{"past its step's time only", update("ends_at = now() - interval '1 second'"), 1},
		{"expired", update("ends_at = now() - interval '1 second', expires_at = now() - interval '1 second'"), 0},
		{"final", update("final = true, finished_at = now(), status = 'sent'"), 0},
		{"another turn", update("turn = turn + 1"), 0},
		{"suppressed for good", suppress("null"), 0},
		{"suppressed for a while", suppress("now() + interval '1 hour'"), 0},
		{"suppressed once", suppress("now() - interval '1 hour'"), 1},
	} {
		a := row(project("p-" + uuid.NewString()[:8]))
		other := row(project(a.Notification.Project), func(a *store.Acceptance) {
			a.Notification.Chain[0].Channel = notify.WhatsApp
			a.Notification.To.WhatsApp = "+15005550006"
		})
		deliveries := d.accept(a, other)
		c.prepare(deliveries[0])
		got := d.tryClaim(claimOf(deliveries[0]), claimOf(deliveries[1]))
		if len(got) != c.want+1 {
			t.Errorf("%s: %d claims, want %d and that of another delivery", c.name, len(got), c.want)
		}
	}
}

func TestOfTwoNodesThatClaimAtOnceOneWins(t *testing.T) {
	t.Parallel()
	a := open(t)
	b := openAt(t, a.url)
	var rows []store.Acceptance
	for range 200 {
		rows = append(rows, row())
	}
	deliveries := a.accept(rows...)
	claims := func(reverse bool) []store.Claim {
		out := make([]store.Claim, len(deliveries))
		for i, delivery := range deliveries {
			if reverse {
				i = len(deliveries) - 1 - i
			}
			out[i] = claimOf(delivery)
		}
		return out
	}
	winners := make([]map[uuid.UUID]bool, 2)
	var wg sync.WaitGroup
	for i, n := range []*db{a, b} {
		all := claims(i == 1)
		winners[i] = map[uuid.UUID]bool{}
		wg.Go(func() {
			for j := 0; j < len(all); j += 20 {
				got, _, err := n.Claim(t.Context(), n.node, all[j:j+20], true)
				if err != nil {
					t.Error(err)
				}
				for _, c := range got {
					winners[i][c.Notification.ID] = true
				}
			}
		})
	}
	wg.Wait()
	for _, delivery := range deliveries {
		if winners[0][delivery.Notification] == winners[1][delivery.Notification] {
			t.Errorf("delivery %v: claimed by the one node %v, by the other %v", delivery.DeliveryID,
				winners[0][delivery.Notification], winners[1][delivery.Notification])
		}
	}
}

func TestAClaimWhoseCommitFailsIsNoClaim(t *testing.T) {
	t.Parallel()
	d := open(t)
	delivery := d.accept(row())[0]
	d.exec(`create function dispatcher.refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$`)
	d.exec(`create constraint trigger refuse after update on dispatcher.deliveries deferrable initially deferred
		for each row execute function dispatcher.refuse()`)
	for _, durable := range []bool{true, false} {
		if got, _, err := d.Claim(t.Context(), d.node, []store.Claim{claimOf(delivery)}, durable); err == nil {
			t.Errorf("durable %v: claimed %d deliveries without a commit", durable, len(got))
		}
	}
	if got := d.delivery(delivery.DeliveryID).Status; got != notify.Queued {
		t.Errorf("delivery is %s", got)
	}
}

func TestAnUnreadableNotificationSpoilsNothingBesideIt(t *testing.T) {
	t.Parallel()
	for column, broken := range map[string]string{"chain": `[{"channel":7}]`, "recipient": `{"sms":[]}`, "content": `[]`} {
		t.Run(column, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			deliveries := d.accept(row(), row())
			bad, good := deliveries[0], deliveries[1]
			d.exec("update dispatcher.notifications set "+column+" = $2::json where id = $1", bad.Notification, broken)
			claimed := map[uuid.UUID]store.Claimed{}
			for _, c := range d.tryClaim(claimOf(bad), claimOf(good)) {
				claimed[c.Notification.ID] = c
			}
			if len(claimed) != 2 || claimed[bad.Notification].Invalid == nil || claimed[good.Notification].Invalid != nil {
				t.Fatalf("claimed %+v", claimed)
			}
			if n := len(claimed[bad.Notification].Notification.Chain); n != 1 {
				t.Errorf("the chain has %d steps, want 1", n)
			}
			records, err := d.Records(t.Context(), []uuid.UUID{bad.Notification, good.Notification})
			if err != nil || len(records) != 2 {
				t.Fatalf("read %d records, %v", len(records), err)
			}
			// A record is read without its content.
			if records[0].Invalid != nil || (records[1].Invalid == nil) != (column == "content") || len(records[1].Deliveries) != 1 {
				t.Errorf("records %+v", records)
			}
			results := []store.Result{
				outcome(claimed[bad.Notification], notify.MessageRejected, store.After{Status: notify.Failed, Final: true}),
				outcome(claimed[good.Notification], notify.Accepted, sent),
			}
			seen := map[uuid.UUID]notify.Status{}
			for i := range results {
				results[i].Join = true
			}
			_, err = d.Record(t.Context(), results, func(r store.Record, _ []store.DeliveryID) store.Joined {
				seen[r.Notification.ID], _ = r.Overall()
				return store.Joined{}
			})
			if err != nil {
				t.Fatal(err)
			}
			want := map[uuid.UUID]notify.Status{bad.Notification: notify.Failed, good.Notification: notify.Sent}
			if diff := cmp.Diff(want, seen); diff != "" {
				t.Errorf("joined (-want +got):\n%s", diff)
			}
			if page, err := d.List(t.Context(), store.Filter{Project: "default", Limit: 10}); err != nil || len(page) != 2 {
				t.Errorf("list gives %d notifications, %v", len(page), err)
			}
		})
	}
}

func TestTheSuppressionListGrowsStricterOnly(t *testing.T) {
	t.Parallel()
	d := open(t)
	at := now()
	hour, day := at.Add(time.Hour), at.Add(24*time.Hour)
	for _, c := range []struct {
		until, want time.Time
	}{{day, day}, {hour, day}, {time.Time{}, time.Time{}}, {day, time.Time{}}} {
		claimed := d.accept(row())[0]
		r := after0(claimed, store.After{Status: notify.Failed, Final: true})
		r.Suppress = &store.Suppression{
			Project: "default", Channel: notify.SMS, Address: claimed.Address, Reason: "recipient_rejected", Source: "main", At: at, Until: c.until,
		}
		d.record(r)
		got := one[*time.Time](d, "select until from dispatcher.suppressions where address = $1", claimed.Address[:])
		if got == nil != c.want.IsZero() || got != nil && !got.Equal(c.want) {
			t.Errorf("after one until %v it is until %v, want %v", c.until, got, c.want)
		}
	}
	if got := d.tryClaim(claimOf(d.accept(row())[0])); len(got) != 0 {
		t.Error("a suppressed address was claimed")
	}
}

func TestOnlyADurableClaimWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	d := open(t)
	// A server for tests may have it off for all.
	d.exec(`do $$ begin execute format('alter database %I set synchronous_commit = on', current_database()); end $$`)
	d = openAt(t, d.url)
	d.exec("create table dispatcher.seen (setting text)")
	d.exec(`create function dispatcher.see() returns trigger language plpgsql as $$
		begin insert into dispatcher.seen values (current_setting('synchronous_commit')); return null; end $$`)
	d.exec(`create trigger see after update on dispatcher.deliveries for each statement execute function dispatcher.see()`)
	for durable, want := range map[bool]string{true: "on", false: "off"} {
		delivery := d.accept(row())[0]
		d.exec("truncate dispatcher.seen")
		if _, _, err := d.Claim(t.Context(), d.node, []store.Claim{claimOf(delivery)}, durable); err != nil {
			t.Fatal(err)
		}
		if got := one[string](d, "select setting from dispatcher.seen"); got != want {
			t.Errorf("durable %v: synchronous_commit is %s, want %s", durable, got, want)
		}
	}
	for _, c := range d.Pool().AcquireAllIdle(t.Context()) {
		var got string
		if err := c.QueryRow(t.Context(), "show synchronous_commit").Scan(&got); err != nil || got != "on" {
			t.Errorf("a connection kept synchronous_commit %s, %v", got, err)
		}
		c.Release()
	}
}
