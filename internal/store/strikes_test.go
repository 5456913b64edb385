package store_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// strike ends a new delivery of project a because its address could not be reached
// at an instant.
func (d *db) strike(at time.Time) store.Delivery {
	d.t.Helper()
	one := d.accept(row(project("a")))[0]
	r := after0(one, store.After{Status: notify.Failed, Final: true, Because: "recipient_unavailable", FinishedAt: at})
	r.Strike = &store.Strike{Project: "a", Channel: one.Channel, Address: one.Address, Account: "main", At: at}
	d.record(r)
	return one
}

// reach ends a new delivery of a project well at an instant.
func (d *db) reach(name string, at time.Time) {
	d.t.Helper()
	one := d.accept(row(project(name)))[0]
	d.record(after0(one, store.After{Status: notify.Sent, Final: true, FinishedAt: at}))
}

func (d *db) strikes() string {
	d.t.Helper()
	return one[string](d, `select coalesce(string_agg(project || ' ' || strikes || ' in ' || round(extract(epoch from last_at - first_at) / 3600) || ' h', ', '), '')
		from (select project, strikes, last_at, first_at from dispatcher.address_strikes order by project) s`)
}

func TestAnAddressThatStaysUnreachableIsSuppressedForAWeek(t *testing.T) {
	t.Parallel()
	d := open(t)
	begin := now().Add(-4 * day)
	d.reach("a", begin.Add(-time.Hour)) // before the first
	d.reach("b", begin.Add(time.Hour))  // another project's success is not this one's
	for i := range 4 {
		d.strike(begin.Add(time.Duration(i) * time.Hour))
	}
	d.strike(begin.Add(3*day - time.Second))
	if got := d.listed(store.SuppressionFilter{Project: "a"}); len(got) != 0 {
		t.Fatalf("suppressed within three days: %+v", got)
	}
	last := d.strike(begin.Add(3 * day))
	got := d.listed(store.SuppressionFilter{Project: "a"})
	if len(got) != 1 || got[0].Reason != store.ReasonUnreachable || got[0].Source != "main" || got[0].Address != last.Address ||
		!got[0].At.Equal(begin.Add(3*day)) || !got[0].Until.Equal(begin.Add(10*day)) {
		t.Errorf("%+v", got)
	}
	if told := d.told("a"); len(told) != 1 || told[0] != "added sms unreachable main for a while" {
		t.Errorf("history %v", told)
	}
	if got := d.strikes(); got != "" {
		t.Errorf("still counted: %s", got)
	}
	if got := d.tryClaim(claimOf(d.accept(row(project("a")))[0])); len(got) != 0 {
		t.Error("the address is written to")
	}
}

func TestFewStrikesOverALongTimeDoNotSuppress(t *testing.T) {
	t.Parallel()
	d := open(t)
	for i := range 4 {
		d.strike(now().Add(time.Duration(i-10) * day))
	}
	if got := d.listed(store.SuppressionFilter{Project: "a"}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got, want := d.strikes(), "a 4 in 72 h"; got != want {
		t.Errorf("counted %q, want %q", got, want)
	}
}

func TestASuccessBetweenBeginsTheCountAnew(t *testing.T) {
	t.Parallel()
	d := open(t)
	begin := now().Add(-5 * day)
	for i := range 4 {
		d.strike(begin.Add(time.Duration(i) * time.Hour))
	}
	d.reach("a", begin.Add(5*time.Hour))
	d.strike(begin.Add(4 * day))
	if got := d.listed(store.SuppressionFilter{Project: "a"}); len(got) != 0 {
		t.Errorf("suppressed although it was reached: %+v", got)
	}
	if got, want := d.strikes(), "a 1 in 0 h"; got != want {
		t.Errorf("counted %q, want %q", got, want)
	}
}

func TestStrikesOfOneFlushAreAllCounted(t *testing.T) {
	t.Parallel()
	d := open(t)
	begin := now().Add(-4 * day)
	var results []store.Result
	for i, one := range d.accept(row(project("a")), row(project("a")), row(project("a")), row(project("a")), row(project("a"))) {
		at := begin.Add(time.Duration(i) * day)
		r := after0(one, store.After{Status: notify.Failed, Final: true, FinishedAt: at})
		r.Strike = &store.Strike{Project: "a", Channel: one.Channel, Address: one.Address, Account: "main", At: at}
		results = append(results, r)
	}
	d.record(results...)
	if got := d.listed(store.SuppressionFilter{Project: "a"}); len(got) != 1 || got[0].Reason != store.ReasonUnreachable {
		t.Errorf("%+v", got)
	}
}

func TestAStrikeCountsForAMonth(t *testing.T) {
	t.Parallel()
	d := open(t)
	at := now()
	for i := range 4 {
		d.strike(at.Add(time.Duration(i)*time.Hour - 40*day))
	}
	d.strike(at.Add(-9 * day)) // more than 30 days after them
	if got, want := d.strikes(), "a 1 in 0 h"; got != want {
		t.Errorf("counted %q, want %q", got, want)
	}
	for _, c := range []struct {
		now  time.Time
		want int64
	}{{at.Add(20 * day), 1}, {at.Add(22 * day), 0}} {
		if _, err := d.Expire(t.Context(), at.Add(-100*day), c.now, 100); err != nil {
			t.Fatal(err)
		}
		if n := d.count("select count(*) from dispatcher.address_strikes"); n != c.want {
			t.Errorf("%d addresses are counted, want %d", n, c.want)
		}
	}
}

func TestAFailedReceiptOfWhatWasSentIsAStrike(t *testing.T) {
	t.Parallel()
	d := open(t)
	one := d.accept(row(project("a")))[0]
	d.record(after0(one, store.After{Status: notify.Sent, Final: true, FinishedAt: now()}))
	c := store.Correction{DeliveryID: one.DeliveryID, Status: notify.Failed, Because: "undelivered: recipient_unavailable"}
	c.Strike = &store.Strike{Project: "a", Channel: one.Channel, Address: one.Address, Account: "main", At: now()}
	for range 2 { // the second corrects nothing
		if _, err := d.Correct(t.Context(), c, now()); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.count("select strikes from dispatcher.address_strikes"); n != 1 {
		t.Errorf("%d strikes, want 1", n)
	}
}

func TestLiftingForgetsStrikes(t *testing.T) {
	t.Parallel()
	d := open(t)
	one := d.strike(now())
	a := store.Address{Channel: one.Channel, Hash: one.Address}
	d.suppress(entry(a, store.ReasonManual, now(), time.Time{}))
	if err := d.Lift(t.Context(), "a", a, "ana", "why", now()); err != nil {
		t.Fatal(err)
	}
	if got := d.strikes(); got != "" {
		t.Errorf("still counted: %s", got)
	}
}
