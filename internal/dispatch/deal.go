package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// deal shares out the room that scopes and channels have over the groups of what
// they hold: to the urgent first, and within a priority and channel to each project
// the same.
type deal struct {
	d      *Dispatcher
	now    time.Time
	rooms  map[string]*scopeRoom
	groups []*group
	last   map[dealt]string // the project that the last round ended with
	// behind is, by scope, the most urgent of what has to stay for want of places
	// for calls.
	behind map[string]notify.Priority
	// over are the shares of the queue for which something has to stay.
	over map[store.Share]bool
}

// scopeRoom is how many deliveries may move, and how many of that are left.
type scopeRoom struct {
	n int
	// places: it is places for calls that bound it.
	places bool
}

// group is the waits of one scope, priority and project.
type group struct {
	store.Hold
	needs   []*scopeRoom // it takes room of each of them; its scope's own is the first
	channel *scopeRoom   // the one of them that is its channel's, if any is
	asked   bool         // whether it was counted, up to one more than could move
	waiting int
	given   int
}

func newDeal(d *Dispatcher, now time.Time) *deal {
	return &deal{
		d: d, now: now, last: maps.Clone(d.dealt), rooms: map[string]*scopeRoom{}, behind: map[string]notify.Priority{}, over: map[store.Share]bool{},
	}
}

// add takes a group in.
func (a *deal) add(h store.Hold) {
	g := &group{Hold: h, waiting: 1}
	a.groups = append(a.groups, g)
	all := a.room(channelScope(h.Channel), h.Channel)
	switch own := a.room(h.Scope, h.Channel); {
	case !shareHolds(h):
		g.needs, g.channel = []*scopeRoom{own}, all
		if own != all {
			g.needs = append(g.needs, all)
		}
	default:
		g.needs = []*scopeRoom{{n: a.d.shareRoom(h)}, own}
		// The queue takes it, unless all that it would do there is to come behind what
		// is held for the channel's places.
		if a.d.flights.overtakes(bounds{{scope: channelScope(h.Channel)}}, h.Priority) != "" {
			g.needs, g.channel = append(g.needs, all), all
		}
	}
}

func (a *deal) room(scope string, c notify.Channel) *scopeRoom {
	r := a.rooms[scope]
	if r == nil {
		r = &scopeRoom{}
		r.n, r.places = a.d.room(scope, c, a.now)
		a.rooms[scope] = r
	}
	return r
}

// room is how many more of a group could move if there were any number of it.
func (g *group) room() int {
	n := g.needs[0].n
	for _, r := range g.needs[1:] {
		n = min(n, r.n)
	}
	return n
}

// ask returns the groups that have room and are to be counted, up to one more than
// that: whether something has to stay is to be known too.
func (a *deal) ask() []store.Room {
	var out []store.Room
	for _, g := range a.groups {
		if n := g.room(); n > 0 {
			g.asked = true
			out = append(out, store.Room{Hold: g.Hold, N: n + 1})
		}
	}
	return out
}

// out deals, given how many there are of each group that was asked about.
func (a *deal) out(counts []int) []store.Room {
	for _, g := range a.groups {
		if g.asked {
			g.waiting, counts = counts[0], counts[1:]
		}
	}
	slices.SortStableFunc(a.groups, func(x, y *group) int {
		if x.Priority != y.Priority {
			return int(x.Priority) - int(y.Priority)
		}
		return x.Since.Compare(y.Since)
	})
	var out []store.Room
	for rest := a.groups; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Priority == rest[0].Priority {
			n++
		}
		a.evenly(rest[:n])
		for _, g := range rest[:n] {
			if g.given > 0 {
				out = append(out, store.Room{Hold: g.Hold, N: g.given})
			}
			if g.given < g.waiting {
				a.stays(g)
			}
		}
		rest = rest[n:]
	}
	return out
}

// evenly gives each project of a channel one of its deliveries in turn, its groups
// taking turns too, as long as there is room. Whose turn is next is kept for the
// next round, or those with the first names would have all of a small room.
func (a *deal) evenly(groups []*group) {
	of := map[store.Share][]*group{}
	var owners []store.Share
	for _, g := range groups {
		o := shareOf(g.Hold)
		if of[o] == nil {
			owners = append(owners, o)
		}
		of[o] = append(of[o], g)
	}
	slices.SortFunc(owners, func(x, y store.Share) int {
		return cmp.Or(cmp.Compare(x.Channel, y.Channel), boolCompare(a.had(x), a.had(y)), cmp.Compare(x.Project, y.Project))
	})
	for len(owners) > 0 {
		owners = slices.DeleteFunc(owners, func(o store.Share) bool {
			for len(of[o]) > 0 {
				g := of[o][0]
				if of[o] = of[o][1:]; g.given == g.waiting || g.room() <= 0 {
					continue // for good: room only ever shrinks
				}
				g.given++
				for _, r := range g.needs {
					r.n--
				}
				of[o] = append(of[o], g)
				a.d.dealt[dealt{o.Channel, o.Priority}] = o.Project
				return false
			}
			return true
		})
	}
}

// dealt is what a round of the waker remembers the last project of.
type dealt struct {
	channel  notify.Channel
	priority notify.Priority
}

// had reports whether a project has had its turn before the last one had.
func (a *deal) had(o store.Share) bool { return o.Project <= a.last[dealt{o.Channel, o.Priority}] }

func boolCompare(x, y bool) int {
	switch {
	case x == y:
		return 0
	case y:
		return -1
	}
	return 1
}

// stays notes what has to stay of a group, so that nothing gets ahead of it.
func (a *deal) stays(g *group) {
	note := func(scope string) {
		if p, ok := a.behind[scope]; !ok || g.Priority < p {
			a.behind[scope] = g.Priority
		}
	}
	if shareHolds(g.Hold) {
		a.over[shareOf(g.Hold)] = true
	} else if own := g.needs[0]; own.places && own.n <= 0 {
		note(g.Scope)
	}
	if g.channel != nil && g.channel.places && g.channel.n <= 0 {
		note(channelScope(g.Channel))
	}
}

// shareHolds reports whether a group waits for its project's share of the queue.
func shareHolds(h store.Hold) bool { return strings.HasPrefix(h.Scope, sharePrefix) }

func shareOf(h store.Hold) store.Share {
	return store.Share{Project: h.Project, Channel: h.Channel, Priority: h.Priority}
}
