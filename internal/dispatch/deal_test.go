package dispatch

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// doors is an admission that says what room its scopes have.
type doors map[string]int

func (doors) Admit(context.Context, *Account, []string, store.RetryKind, time.Time) (Ticket, *Refusal) {
	return nil, nil
}
func (doors) Known() bool                                            { return true }
func (doors) Health(*Account, []string, time.Time) resilience.Health { return resilience.Health{} }
func (d doors) Room(scope string, _ time.Duration, _ time.Time) int {
	if n, ok := d[scope]; ok {
		return n
	}
	return resilience.Unlimited
}

// dealer deals for a node whose channels have room for so many calls, of which
// all of a sudden none has ended yet.
func dealer(t interface{ Helper() }, limit int, a Admission) *Dispatcher {
	t.Helper()
	now := time.Now
	d := &Dispatcher{
		cfg: Config{Now: now, Admission: a, WakeEvery: wakeInterval}, flights: newFlights(now), shares: newShares(2000), dealt: map[dealt]string{},
	}
	d.registry.Store(NewRegistry(map[notify.Channel]Channel{
		notify.SMS:     {MaxInFlight: limit, Accounts: []*Account{hidden("sms-main", notify.SMS)}},
		notify.Webhook: {MaxInFlight: limit, Accounts: []*Account{hidden("hook-main", notify.Webhook)}},
	}))
	return d
}

func hidden(account string, c notify.Channel) *Account {
	a := muted(account, c, "p")
	a.Hidden = true
	return a
}

// heldGroup is a group of so many waits, the oldest of which is so old.
type heldGroup struct {
	scope   string
	p       notify.Priority
	project string
	n       int
	age     time.Duration
}

func (d *Dispatcher) dealOut(groups []heldGroup) (a *deal, rooms map[string]int) {
	now := d.cfg.Now()
	a = newDeal(d, now)
	for _, g := range groups {
		c := notify.SMS
		if g.scope != channelScope(notify.SMS) && g.scope != shareScope(notify.SMS) && g.scope != "sms-main" {
			c = notify.Webhook
		}
		a.add(store.Hold{Scope: g.scope, Priority: g.p, Project: g.project, Channel: c, Since: now.Add(-g.age)})
	}
	asked := a.ask()
	counts := make([]int, len(asked))
	for i, r := range asked {
		for _, g := range groups {
			if g.scope == r.Scope && g.p == r.Priority && g.project == r.Project {
				counts[i] = min(g.n, r.N)
			}
		}
	}
	rooms = map[string]int{}
	for _, r := range a.out(counts) {
		rooms[r.Scope+" "+r.Priority.String()+" "+r.Project] = r.N
	}
	return a, rooms
}

func TestDealing(t *testing.T) {
	t.Parallel()
	const (
		sms   = "channel:sms"
		queue = "queue:sms"
		hooks = "channel:webhook"
		host  = "webhook-main/host:a"
		other = "webhook-main/host:b"
	)
	shut := doors{other: 0, "webhook-main/host:probe": 1}
	// A channel of 8 has room for 8 and a line of 16, a destination for 2 and 4.
	for name, c := range map[string]struct {
		held   []heldGroup
		taken  int // calls of the channel under way, none of which goes to a destination
		want   map[string]int
		behind map[string]notify.Priority
		over   int
	}{
		"the urgent take all there is": {
			held:   []heldGroup{{sms, notify.Low, "p", 50, 0}, {sms, notify.Critical, "p", 30, 0}},
			want:   map[string]int{sms + " critical p": 24},
			behind: map[string]notify.Priority{sms: notify.Critical},
		},
		"what the urgent leave goes to the others": {
			held:   []heldGroup{{sms, notify.Low, "p", 50, 0}, {sms, notify.Critical, "p", 1, 0}, {sms, notify.Normal, "p", 20, 0}},
			want:   map[string]int{sms + " critical p": 1, sms + " normal p": 20, sms + " low p": 3},
			behind: map[string]notify.Priority{sms: notify.Low},
		},
		"all of it": {
			held: []heldGroup{{sms, notify.Low, "p", 5, 0}, {sms, notify.High, "p", 5, 0}},
			want: map[string]int{sms + " low p": 5, sms + " high p": 5},
		},
		"exactly as many as there is room for": {
			held: []heldGroup{{sms, notify.Low, "p", 24, 0}},
			want: map[string]int{sms + " low p": 24},
		},
		"projects get the same": {
			held:   []heldGroup{{sms, notify.Low, "a", 500, time.Hour}, {sms, notify.Low, "b", 4, 0}, {sms, notify.Low, "c", 500, 0}},
			want:   map[string]int{sms + " low a": 10, sms + " low b": 4, sms + " low c": 10},
			behind: map[string]notify.Priority{sms: notify.Low},
		},
		"a destination has its own room, and the urgent of all destinations the channel's": {
			held: []heldGroup{
				{host, notify.Low, "p", 50, 0}, {other + "c", notify.Critical, "p", 50, 0}, {hooks, notify.Normal, "q", 50, 0},
			},
			want:   map[string]int{other + "c critical p": 6, hooks + " normal q": 18},
			behind: map[string]notify.Priority{other + "c": notify.Critical, hooks: notify.Normal},
		},
		"a breaker's door is no want of places": {
			held: []heldGroup{{other, notify.Critical, "p", 50, 0}, {"webhook-main/host:probe", notify.Critical, "p", 50, 0}, {host, notify.Low, "p", 3, 0}},
			want: map[string]int{"webhook-main/host:probe critical p": 1, host + " low p": 3},
		},
		"a full channel lets nothing go": {
			taken:  8,
			held:   []heldGroup{{hooks, notify.Low, "p", 50, 0}, {host, notify.High, "p", 50, 0}},
			want:   map[string]int{},
			behind: map[string]notify.Priority{hooks: notify.High},
		},
		"shares of the queue have room of their own": {
			held: []heldGroup{{queue, notify.Low, "p", defaultShare + 200, 0}, {queue, notify.Low, "q", 20, 0}, {queue, notify.High, "p", 3, 0}},
			want: map[string]int{queue + " low p": wakeLimit*wakeRounds - 23, queue + " low q": 20, queue + " high p": 3},
			over: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dealer(t, 8, shut)
			for range c.taken {
				p, _ := d.flights.take(t.Context(), flight{channel: notify.Webhook, bounds: bounds{{channelScope(notify.Webhook), 8}}, priority: notify.Low})
				p.begun = p.begun.Add(-time.Hour)
				p.lanes[0].took, p.lanes[0].moved = time.Hour, p.begun
			}
			deal, rooms := d.dealOut(c.held)
			if diff := cmp.Diff(c.want, rooms); diff != "" {
				t.Errorf("rooms (-want +got):\n%s", diff)
			}
			if c.behind == nil {
				c.behind = map[string]notify.Priority{}
			}
			if diff := cmp.Diff(c.behind, deal.behind); diff != "" {
				t.Errorf("behind (-want +got):\n%s", diff)
			}
			if len(deal.over) != c.over {
				t.Errorf("over %v, want %d", deal.over, c.over)
			}
		})
	}
}

func TestWithRoomForOneTheProjectsTakeTurns(t *testing.T) {
	t.Parallel()
	d := dealer(t, 8, doors{"webhook-main/host:a": 1})
	var got []string
	for range 6 {
		_, rooms := d.dealOut([]heldGroup{
			{"webhook-main/host:a", notify.Low, "b", 5, time.Minute},
			{"webhook-main/host:a", notify.Low, "a", 5, time.Hour},
			{"webhook-main/host:a", notify.Low, "c", 5, 0},
			{"webhook-main/host:b", notify.Normal, "a", 1, 0},
		})
		for _, p := range []string{"a", "b", "c"} {
			if rooms["webhook-main/host:a low "+p] == 1 {
				got = append(got, p)
			}
		}
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "a", "b", "c"}, got); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}

func TestTheQueueTakesNothingThatWouldComeBehindWhatIsHeld(t *testing.T) {
	t.Parallel()
	d := dealer(t, 8, doors{})
	d.flights.look(map[string]notify.Priority{"channel:sms": notify.Normal})
	_, rooms := d.dealOut([]heldGroup{
		{"channel:sms", notify.Normal, "a", 100, 0},
		{"queue:sms", notify.Normal, "b", 100, 0},
		{"queue:sms", notify.Low, "b", 100, 0},
		{"queue:sms", notify.High, "b", 100, 0},
	})
	want := map[string]int{"channel:sms normal a": 12, "queue:sms normal b": 12, "queue:sms high b": 100}
	if diff := cmp.Diff(want, rooms); diff != "" {
		t.Errorf("rooms (-want +got):\n%s", diff)
	}
}

// Whatever is held: no scope and no channel gets more than it has room for, no room
// is left while something could use it, and nothing moves while something more
// urgent that it shares its room with stays.
func TestADealIsFairAndWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		d := dealer(t, 8, doors{})
		var held []heldGroup
		seen := map[string]bool{}
		for i := range rapid.IntRange(1, 30).Draw(r, "groups") {
			g := heldGroup{
				scope: rapid.SampledFrom([]string{"channel:webhook", "webhook-main/a", "webhook-main/b", "webhook-main/c"}).Draw(r, "scope"),
				p:     notify.Priority(rapid.IntRange(1, 4).Draw(r, "priority")), project: strconv.Itoa(rapid.IntRange(0, 4).Draw(r, "project")),
				n: rapid.IntRange(1, 40).Draw(r, "n"), age: time.Duration(i) * time.Second,
			}
			if k := g.scope + g.p.String() + g.project; !seen[k] {
				seen[k], held = true, append(held, g)
			}
		}
		_, rooms := d.dealOut(held)
		byScope, all := map[string]int{}, 0
		for _, g := range held {
			n := rooms[g.scope+" "+g.p.String()+" "+g.project]
			if n > g.n {
				r.Fatalf("%d of %+v", n, g)
			}
			byScope[g.scope] += n
			all += n
		}
		room := func(scope string) int {
			if scope == "channel:webhook" {
				return 24
			}
			return 6
		}
		for scope, n := range byScope {
			if n > room(scope) || all > 24 {
				r.Fatalf("%d of %s and %d of the channel", n, scope, all)
			}
		}
		for _, g := range held {
			if rooms[g.scope+" "+g.p.String()+" "+g.project] == g.n {
				continue
			}
			if byScope[g.scope] < room(g.scope) && all < 24 {
				r.Fatalf("%+v stays although there is room", g)
			}
			for _, less := range held {
				if less.scope == g.scope && less.p > g.p && rooms[less.scope+" "+less.p.String()+" "+less.project] > 0 {
					r.Fatalf("%+v goes before %+v", less, g)
				}
			}
		}
	})
}
