package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// flights gives out the places for calls, by channel, account and destination, so
// that a provider that hangs ties up its own channel only, one slow destination only
// a quarter of that, and nothing is claimed that its account cannot call yet. Who
// finds none may wait in line for a moment. While more is held for places than
// could be let go, what has just arrived and is no more urgent than that gets none.
type flights struct {
	now func() time.Time

	mu    sync.Mutex
	lanes map[string]*lane // by scope
	lines map[notify.Channel]line
	// turns are those of the projects in a channel's line, for as long as there is one.
	turns map[notify.Channel]map[string]*turn
	given uint64 // how many places in lines were given
}

// flight is what asks for a place.
type flight struct {
	channel   notify.Channel
	project   string
	bounds    bounds
	priority  notify.Priority
	heldSince time.Time // zero for one that has just arrived

	lanes []*lane // the channel's first; set by take
}

// place is leave for one call.
type place struct {
	flights *flights
	flight
	begun time.Time
	left  bool
}

func newFlights(now func() time.Time) *flights {
	return &flights{now: now, lanes: map[string]*lane{}, lines: map[notify.Channel]line{}, turns: map[notify.Channel]map[string]*turn{}}
}

// channelScope is the scope of what holds a whole channel: a pause, or too many
// calls under way.
func channelScope(c notify.Channel) string { return "channel:" + string(c) }

// take asks for a place, and waits in line for one where that may help. It returns
// the place, or the scope that is full; neither when ctx has ended.
func (f *flights) take(ctx context.Context, asks flight) (p *place, full string) {
	p, w, full := f.enter(asks)
	if w == nil {
		return p, full
	}
	timer := time.NewTimer(linePatience)
	defer timer.Stop()
	var in bool
	select {
	case in = <-w.answer:
	case <-timer.C:
		in = f.abandon(w, true)
	case <-ctx.Done():
		if in = f.abandon(w, false); !in {
			return nil, ""
		}
	}
	if !in {
		return nil, w.full
	}
	return &place{flights: f, flight: w.flight, begun: f.now()}, ""
}

// enter is ask for a flight that does not know its lanes yet.
func (f *flights) enter(asks flight) (*place, *waiter, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asks.lanes = f.lanesOf(asks.bounds)
	return f.ask(asks)
}

// ask gives a flight its place, or a waiter in line, or the scope that is full.
func (f *flights) ask(asks flight) (*place, *waiter, string) {
	now := f.now()
	if asks.heldSince.IsZero() {
		for _, l := range asks.lanes {
			if l.holds(asks.priority, now) {
				return nil, nil, l.scope
			}
		}
	} else {
		for _, l := range asks.lanes {
			l.coming[asks.priority] = max(l.coming[asks.priority]-1, 0)
		}
	}
	full := asks.full()
	if full == nil {
		asks.begin(now)
		return &place{flights: f, flight: asks, begun: now}, nil, ""
	}
	if full.waiting >= full.line(now) && !f.yield(asks, full) {
		full.refuse(asks.priority, now)
		return nil, nil, full.scope
	}
	w := &waiter{flight: asks, since: asks.heldSince, turn: f.turn(&asks), full: full.scope, answer: make(chan bool, 1)}
	if w.since.IsZero() {
		w.since = now
	}
	f.lines[asks.channel] = f.lines[asks.channel].insert(w)
	return nil, w, ""
}

// leave gives the place back; called says that a call was made. Only the first
// time counts.
func (p *place) leave(called bool) {
	if p.left {
		return
	}
	p.left = true
	p.flights.mu.Lock()
	defer p.flights.mu.Unlock()
	now := p.flights.now()
	for _, l := range p.lanes {
		l.calls--
		l.moved = now
		if called {
			l.learn(now.Sub(p.begun))
		}
	}
	p.flights.serve(p.channel, 1)
}

// overtakes returns that of the bounds' scopes for which something is held that a
// delivery which arrives now must not get ahead of; empty if there is none.
func (f *flights) overtakes(by bounds, p notify.Priority) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range by {
		if l := f.lanes[b.scope]; l != nil && l.holds(p, f.now()) {
			return b.scope
		}
	}
	return ""
}

// room is how many deliveries held for a scope could be let go: one for each free
// place, and so many more as get their turn in line.
func (f *flights) room(b bound) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lanes[b.scope]
	if l == nil {
		l = &lane{moved: f.now()}
	}
	l.places = b.places
	return max(l.places-l.calls+l.line(f.now())-l.waiting-l.ahead(notify.Low), 0)
}

// letGo notes that the waker lets n go that a scope of a channel held.
func (f *flights) letGo(c notify.Channel, scope string, p notify.Priority, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lane(channelScope(c)).coming[p] += n
	if scope != channelScope(c) {
		f.lane(scope).coming[p] += n
	}
}

// look takes over what the waker has seen: behind is, by scope, the most urgent of
// what is held for a place and cannot be let go yet. Lanes on which nothing happens
// any more are forgotten.
func (f *flights) look(behind map[string]notify.Priority) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	for scope := range behind {
		f.lane(scope)
	}
	for scope, l := range f.lanes {
		l.behind, l.behindAt = behind[scope], now
		for p := range l.coming {
			l.coming[p] /= 2
		}
		if l.idle(now) {
			delete(f.lanes, scope)
		}
	}
	for c := range f.lines {
		f.serve(c, lineMost)
		if len(f.lines[c]) == 0 {
			delete(f.turns, c)
		}
	}
}

// turn returns that of a flight's project in its channel's line.
func (f *flights) turn(of *flight) *turn {
	turns := f.turns[of.channel]
	if turns == nil {
		turns = map[string]*turn{}
		f.turns[of.channel] = turns
	}
	t := turns[of.project]
	if t == nil {
		t = &turn{}
		turns[of.project] = t
	}
	return t
}

// lanesOf returns a flight's lanes, as wide as they are configured now.
func (f *flights) lanesOf(of bounds) []*lane {
	lanes := make([]*lane, 0, len(of))
	for _, b := range of {
		if b.scope != "" {
			l := f.lane(b.scope)
			l.places = b.places
			lanes = append(lanes, l)
		}
	}
	return lanes
}

func (f *flights) lane(scope string) *lane {
	l := f.lanes[scope]
	if l == nil {
		l = &lane{scope: scope, moved: f.now()}
		f.lanes[scope] = l
	}
	return l
}

// full returns the lane that has no place for a flight, nil if it may begin.
// Whoever has just arrived leaves places to what was let go and is on its way.
func (a *flight) full() *lane {
	for _, l := range a.lanes {
		free := l.places - l.calls
		if a.heldSince.IsZero() {
			free -= l.ahead(a.priority)
		}
		if free <= 0 {
			return l
		}
	}
	return nil
}

func (a *flight) begin(now time.Time) {
	for _, l := range a.lanes {
		l.calls++
		l.moved = now
	}
}

// serve gives at most n places to those in a channel's line.
func (f *flights) serve(c notify.Channel, n int) {
	now := f.now()
	for ; n > 0; n-- {
		i := f.lines[c].next()
		if i < 0 {
			return
		}
		w := f.lines[c][i]
		f.lines[c] = f.lines[c].remove(i)
		f.given++
		w.turn.last = f.given
		w.begin(now)
		w.answer <- true
	}
}

// yield sends the last one in line away that waits for a lane and is less urgent
// than a flight, and reports whether there was one.
func (f *flights) yield(to flight, full *lane) bool {
	line := f.lines[to.channel]
	for i := len(line) - 1; i >= 0 && line[i].priority > to.priority; i-- {
		w := line[i]
		if !slices.Contains(w.lanes, full) {
			continue
		}
		f.lines[to.channel] = line.remove(i)
		w.full = full.scope
		full.refuse(w.priority, f.now())
		w.answer <- false
		return true
	}
	return false
}

// abandon takes a waiter out of the line and reports whether it has been given its
// place meanwhile. One that was refused will be held.
func (f *flights) abandon(w *waiter, refused bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.lines[w.channel], w)
	if i < 0 {
		return <-w.answer
	}
	f.lines[w.channel] = f.lines[w.channel].remove(i)
	full := w.flight.full()
	if full == nil {
		full = w.lanes[0]
	}
	if w.full = full.scope; refused {
		full.refuse(w.priority, f.now())
	}
	return false
}
