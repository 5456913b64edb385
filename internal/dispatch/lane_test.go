package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestProjectsTakeTurnsInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights(time.Now)
		asks := asking(notify.Email, "", 16)
		taken := fill(f, asks)
		out := make(chan verdict, 10)
		of := func(project string, p notify.Priority, heldFor time.Duration) flight {
			a := asks
			a.project, a.priority, a.heldSince = project, p, time.Now().Add(-heldFor)
			return a
		}
		for i := range 4 {
			ask(f, fmt.Sprint("flood ", i), of("flood", notify.Normal, time.Hour-time.Duration(i)*time.Minute), out)
		}
		ask(f, "flood, critical", of("flood", notify.Critical, time.Second), out)
		ask(f, "other 0", of("other", notify.Normal, 2*time.Second), out)
		ask(f, "other 1", of("other", notify.Normal, time.Second), out)
		ask(f, "other, low", of("other", notify.Low, time.Hour), out)
		var got []string
		for range 8 {
			taken[0].leave(false)
			synctest.Wait()
			v := <-out
			got, taken = append(got, v.name), append(taken[1:], v.place)
		}
		want := []string{"flood, critical", "other 0", "flood 0", "other 1", "flood 1", "flood 2", "flood 3", "other, low"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

func TestOneProjectIsNotPassedOverForSeveralThatFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights(time.Now)
		asks := asking(notify.Email, "", 16)
		taken := fill(f, asks)
		out := make(chan verdict, 32)
		for i := range 30 {
			asks.project, asks.heldSince = fmt.Sprint("flood ", i%3), time.Now().Add(-time.Hour)
			ask(f, asks.project, asks, out)
		}
		asks.project, asks.heldSince = "other", time.Time{}
		ask(f, "other", asks, out)
		var got []string
		for range 31 {
			taken[0].leave(false)
			synctest.Wait()
			v := <-out
			got, taken = append(got, v.name), append(taken[1:], v.place)
		}
		if before := slices.Index(got, "other"); before > 3 {
			t.Errorf("%d of three projects that flood were served before the only one of another", before)
		}
	})
}
