package dispatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// asking is what the tests ask places with.
func asking(c notify.Channel, destination string, limit int) flight {
	b := bounds{{channelScope(c), limit}}
	if destination != "" {
		b[2] = bound{destination, share(limit)}
	}
	return flight{channel: c, bounds: b, priority: notify.Normal}
}

// fill takes all places that are free at once.
func fill(f *flights, asks flight) (taken []*place) {
	for {
		f.mu.Lock()
		asks.lanes = f.lanesOf(asks.bounds)
		full := asks.full()
		f.mu.Unlock()
		if full != nil {
			return taken
		}
		p, _ := f.take(context.Background(), asks)
		taken = append(taken, p)
	}
}

// verdict is what came of asking for a place.
type verdict struct {
	name  string
	place *place
	full  string
	after time.Duration
}

// ask asks for a place and sends what came of it to out.
func ask(f *flights, name string, asks flight, out chan<- verdict) {
	begun := time.Now()
	go func() {
		p, full := f.take(context.Background(), asks)
		out <- verdict{name, p, full, time.Since(begun)}
	}()
	synctest.Wait()
}

func TestADestinationHoldsAQuarterOfTheChannelsPlaces(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{8: 2, 9: 2, 256: 64, 3: 1, 1: 1} {
		f := newFlights(time.Now)
		slow := fill(f, asking(notify.Email, "slow", limit))
		others := fill(f, asking(notify.Email, "", limit))
		if len(slow) != want || len(others) != limit-want {
			t.Errorf("of %d the slow destination has %d, want %d, and the others %d", limit, len(slow), want, len(others))
		}
		if p := fill(f, asking(notify.SMS, "", 1)); len(p) != 1 {
			t.Error("another channel must have its own places")
		}
	}
}

func TestAPlaceThatIsGivenBackGoesToTheFirstInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights(time.Now)
		asks := asking(notify.Email, "slow", 16)
		taken := fill(f, asks)
		out := make(chan verdict, 10)
		with := func(p notify.Priority, heldFor time.Duration) flight {
			a := asks
			if a.priority = p; heldFor > 0 {
				a.heldSince = time.Now().Add(-heldFor)
			}
			return a
		}
		ask(f, "low, held for long", with(notify.Low, time.Hour), out)
		ask(f, "normal", with(notify.Normal, 0), out)
		ask(f, "normal, later", with(notify.Normal, 0), out)
		ask(f, "normal, held", with(notify.Normal, time.Second), out)
		ask(f, "critical", with(notify.Critical, 0), out)
		var got []string
		for range 5 {
			taken[0].leave(false)
			taken[0].leave(false) // once more is nothing
			synctest.Wait()
			v := <-out
			if v.full != "" {
				t.Fatalf("%s was refused for %s", v.name, v.full)
			}
			got, taken = append(got, v.name), append(taken[1:], v.place)
		}
		want := []string{"critical", "normal, held", "normal", "normal, later", "low, held for long"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

func TestALineIsAsLongAsItsTurnComesSoon(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		took time.Duration // of the calls before; 0 for none
		want int
	}{
		"unknown":               {0, 32},                      // 16 places, 100 ms a call: 32 in 200 ms
		"calls of 20 ms":        {20 * time.Millisecond, 160}, // 200 ms are ten rounds
		"calls of four seconds": {4 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFlights(time.Now)
				asks := asking(notify.Email, "d", 64)
				if taken := fill(f, asks); c.took > 0 {
					time.Sleep(c.took)
					for _, p := range taken {
						p.leave(true)
					}
					fill(f, asks)
				}
				out := make(chan verdict, 300)
				for range c.want + 10 {
					ask(f, "", asks, out)
				}
				for range 10 {
					if v := <-out; v.full != "d" || v.after != 0 {
						t.Errorf("refused for %q after %v", v.full, v.after)
					}
				}
				for range c.want {
					if v := <-out; v.full != "d" || v.after != linePatience {
						t.Errorf("left the line for %q after %v", v.full, v.after)
					}
				}
			})
		})
	}
}

func TestALineShortensWhileCallsHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights(time.Now)
		asks := asking(notify.Email, "d", 64)
		for _, p := range fill(f, asks) {
			time.Sleep(time.Millisecond)
			p.leave(true)
		}
		fill(f, asks)
		for after, want := range map[time.Duration]int{0: 300, 500 * time.Millisecond: 6, 4 * time.Second: 0} {
			if got := f.lanes["d"].line(time.Now().Add(after)); after == 0 && got < want || after > 0 && got != want {
				t.Errorf("%d may wait after %v without an end of a call, want %d", got, after, want)
			}
		}
	})
}

func TestTheUrgentTakesAPlaceInLineFromOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights(time.Now)
		asks := asking(notify.Email, "d", 4) // one place, and two in line
		taken := fill(f, asks)
		out := make(chan verdict, 10)
		first, second := asks, asks
		first.priority, second.priority = notify.High, notify.Low
		ask(f, "high", first, out)
		ask(f, "low", second, out)
		urgent := asks
		urgent.priority = notify.Critical
		ask(f, "critical", urgent, out)
		if v := <-out; v.name != "low" || v.full != "d" {
			t.Errorf("%s was sent away for %q", v.name, v.full)
		}
		taken[0].leave(false)
		if v := <-out; v.name != "critical" || v.place == nil {
			t.Errorf("%s came next", v.name)
		}
		if v := <-out; v.name != "high" || v.full != "d" || v.after != linePatience {
			t.Errorf("%s left for %q after %v", v.name, v.full, v.after)
		}
	})
}

func TestAStopEndsTheWaitInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights(time.Now)
		asks := asking(notify.Email, "", 1)
		fill(f, asks)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		begun := time.Now()
		if p, full := f.take(ctx, asks); p != nil || full != "" || time.Since(begun) != 100*time.Millisecond {
			t.Errorf("place %v, full %q after %v", p, full, time.Since(begun))
		}
		if l := f.lanes[channelScope(notify.Email)]; l.waiting != 0 || l.behind != 0 {
			t.Errorf("%d in line, behind %d: nobody is held for it", l.waiting, l.behind)
		}
	})
}

func TestWhatArrivesDoesNotGetAheadOfWhatIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights(time.Now)
		asks := asking(notify.Email, "d", 64)
		f.look(map[string]notify.Priority{"d": notify.High})
		for p, want := range map[notify.Priority]string{notify.Critical: "", notify.High: "d", notify.Low: "d"} {
			asks.priority = p
			if got := f.overtakes(asking(notify.Email, "d", 64).bounds, p); got != want {
				t.Errorf("%s is held for %q, want %q", p, got, want)
			}
			got, full := f.take(t.Context(), asks)
			if full != want {
				t.Errorf("%s is refused for %q, want %q", p, full, want)
			}
			if got != nil {
				got.leave(false)
			}
			if other := f.overtakes(asking(notify.Email, "other", 64).bounds, p); other != "" {
				t.Errorf("%s to another destination is held for %q", p, other)
			}
		}
		asks.heldSince = time.Now()
		if p, full := f.take(t.Context(), asks); p == nil {
			t.Errorf("one that was held and let go is refused for %q", full)
		}
		time.Sleep(behindTrust) // nobody looks any more
		if got := f.overtakes(asking(notify.Email, "d", 64).bounds, notify.Low); got != "" {
			t.Errorf("still held for %q", got)
		}
		f.look(map[string]notify.Priority{channelScope(notify.Email): notify.Low})
		if got := f.overtakes(asking(notify.Email, "d", 64).bounds, notify.Low); got != channelScope(notify.Email) {
			t.Errorf("held for %q, want the channel", got)
		}
		f.look(nil)
		if got := f.overtakes(asking(notify.Email, "d", 64).bounds, notify.Low); got != "" {
			t.Errorf("held for %q although nothing is", got)
		}
	})
}

func TestPlacesAreKeptForWhatWasLetGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights(time.Now)
		low := asking(notify.Email, "d", 16) // four places
		low.priority = notify.Low
		fill(f, asking(notify.Email, "d", 16))[0].leave(false) // one is free
		f.letGo(notify.Email, "d", notify.Normal, 1)
		out := make(chan verdict, 3)
		ask(f, "low", low, out)
		held := asking(notify.Email, "d", 16)
		held.heldSince = time.Now().Add(-time.Minute)
		p, full := f.take(t.Context(), held)
		if p == nil {
			t.Fatalf("the one that was let go is refused for %q", full)
		}
		select {
		case v := <-out:
			t.Errorf("the low one got its place: %+v", v)
		default:
		}
		p.leave(false)
		if v := <-out; v.place == nil {
			t.Errorf("the low one is refused for %q", v.full)
		}
		// One that goes to another node keeps its place free for no longer than a
		// round or two of the waker.
		f.letGo(notify.Email, "other", notify.Normal, 1)
		ask(f, "", asking(notify.Email, "other", 16), out)
		f.look(nil)
		if v := <-out; v.place == nil {
			t.Errorf("refused for %q", v.full)
		}
	})
}

func TestARoomIsWhatIsFreeAndWhatGetsItsTurnInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights(time.Now)
		room := func() int { return f.room(bound{"d", 16}) }
		if got := room(); got != 16+32 {
			t.Errorf("room for %d, want the 16 places and a line of 32", got)
		}
		f.letGo(notify.Email, "d", notify.Low, 40)
		if got := room(); got != 8 {
			t.Errorf("room for %d when 40 are on their way, want 8", got)
		}
		f.look(nil)
		if got := room(); got != 28 {
			t.Errorf("room for %d a round later, want 28", got)
		}
		f.look(nil)
		f.look(nil)
		f.look(nil)
		f.look(nil)
		f.look(nil)
		taken := fill(f, asking(notify.Email, "d", 64))
		time.Sleep(4 * time.Second)
		for _, p := range taken[:3] {
			p.leave(true)
		}
		if got := room(); got != 3 {
			t.Errorf("room for %d, want the 3 places that calls of 4 s left", got)
		}
	})
}

func TestLanesOnWhichNothingHappensAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights(time.Now)
		p, _ := f.take(t.Context(), asking(notify.Email, "d", 8))
		time.Sleep(2 * laneIdle)
		f.look(nil)
		if len(f.lanes) != 2 {
			t.Errorf("%d lanes while a call is under way", len(f.lanes))
		}
		p.leave(true)
		f.look(nil)
		if len(f.lanes) != 2 {
			t.Errorf("%d lanes right after a call", len(f.lanes))
		}
		time.Sleep(laneIdle)
		f.look(map[string]notify.Priority{"e": notify.Low})
		if len(f.lanes) != 1 {
			t.Errorf("%d lanes, want the one that something is held for", len(f.lanes))
		}
	})
}

// Whatever comes and goes, there are never more calls than places, and nobody waits
// while there is a place for him.
func TestPlacesAreNeverOverdrawnAndNeverIdle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		now := time.Unix(0, 0)
		f := newFlights(func() time.Time { return now })
		var flying []*place
		var waiting []*waiter
		for range rapid.IntRange(1, 200).Draw(r, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(r, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 4).Draw(r, "what") {
			case 0, 1:
				asks := asking(notify.Email, rapid.SampledFrom([]string{"", "a", "b"}).Draw(r, "destination"), 8)
				asks.priority = notify.Priority(rapid.IntRange(1, 4).Draw(r, "priority"))
				if rapid.Bool().Draw(r, "held") {
					asks.heldSince = now.Add(-time.Second)
				}
				asks.lanes = f.lanesOf(asks.bounds)
				p, w, _ := f.ask(asks)
				if p != nil {
					flying = append(flying, p)
				}
				if w != nil {
					waiting = append(waiting, w)
				}
			case 2:
				if len(flying) > 0 {
					i := rapid.IntRange(0, len(flying)-1).Draw(r, "which")
					flying[i].leave(rapid.Bool().Draw(r, "called"))
					flying = append(flying[:i], flying[i+1:]...)
				}
			case 3:
				f.letGo(notify.Email, rapid.SampledFrom([]string{channelScope(notify.Email), "a"}).Draw(r, "scope"), notify.Normal, 2)
			case 4:
				f.look(nil)
			}
			waiting = settle(r, f, waiting, &flying, now)
		}
		for len(flying)+len(waiting) > 0 {
			for range 8 {
				f.look(nil) // nothing is coming any more
			}
			waiting = settle(r, f, waiting, &flying, now)
			if len(flying) == 0 && len(waiting) > 0 {
				r.Fatalf("%d wait for nothing", len(waiting))
			}
			if len(flying) > 0 {
				flying[0].leave(true)
				flying = flying[1:]
			}
		}
		for scope, l := range f.lanes {
			if l.calls != 0 || l.waiting != 0 {
				r.Errorf("%s: %d calls and %d in line when all is over", scope, l.calls, l.waiting)
			}
		}
	})
}

// settle takes over what became of those in line, and checks the sums.
func settle(r *rapid.T, f *flights, waiting []*waiter, flying *[]*place, now time.Time) (still []*waiter) {
	for _, w := range waiting {
		select {
		case in := <-w.answer:
			if in {
				*flying = append(*flying, &place{flights: f, flight: w.flight, begun: now})
			}
		default:
			still = append(still, w)
		}
	}
	calls := map[string]int{}
	for _, p := range *flying {
		for _, l := range p.lanes {
			calls[l.scope]++
		}
	}
	for scope, l := range f.lanes {
		if l.calls != calls[scope] || l.calls > l.places && l.places > 0 {
			r.Fatalf("%s counts %d calls of %d, %d are under way", scope, l.calls, l.places, calls[scope])
		}
	}
	if line := f.lines[notify.Email]; len(line) != len(still) {
		r.Fatalf("%d in line, %d wait", len(line), len(still))
	}
	return still
}
