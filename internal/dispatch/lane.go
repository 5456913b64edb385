package dispatch

import (
	"slices"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// What is waited for in line, in memory and with a worker in hand, is a place that
// comes free in a moment. What has to wait longer is a row.
const (
	// lineTime is how long the last one in a line may have to wait, as far as can be
	// told from how long calls take.
	lineTime = 200 * time.Millisecond
	// linePatience is when one that is still in line is sent away.
	linePatience = 2 * lineTime
	// lineMost bounds a line, however quick its calls are.
	lineMost = 2000
	// firstCall is how long a call is taken to last before one has ended.
	firstCall = 100 * time.Millisecond
	// laneIdle is for how long a lane is remembered on which nothing happens.
	laneIdle = time.Minute
	// behindTrust is for how long it counts what the waker saw held, should it not
	// look again.
	behindTrust = 2 * time.Second
)

// lane is what the calls of a channel, an account or a destination go through.
type lane struct {
	scope   string
	places  int
	calls   int // under way
	waiting int // in line
	// coming are those, by priority, that the waker has let go and that are not here
	// yet. Some of them go to other nodes, so the number fades.
	coming [notify.Low + 1]int
	// behind is the most urgent of what is held for a place and could not be let go,
	// 0 for none, as of an instant.
	behind   notify.Priority
	behindAt time.Time
	took     time.Duration // how long calls take, on average; 0 is unknown
	moved    time.Time     // when a call last began or ended
}

// holds reports whether something is held that goes before what has just arrived.
func (l *lane) holds(p notify.Priority, now time.Time) bool {
	return l.behind != 0 && p >= l.behind && now.Sub(l.behindAt) < behindTrust
}

// refuse notes that something is held from now on, before the waker sees it.
func (l *lane) refuse(p notify.Priority, now time.Time) {
	if l.behind == 0 || p < l.behind || now.Sub(l.behindAt) >= behindTrust {
		l.behind = p
	}
	l.behindAt = now
}

// ahead counts what is coming and no less urgent than p.
func (l *lane) ahead(p notify.Priority) int {
	n := 0
	for _, c := range l.coming[:p+1] {
		n += c
	}
	return n
}

// line is how many may wait: as many as get their turn soon.
func (l *lane) line(now time.Time) int {
	took := l.took
	if took == 0 {
		took = firstCall
	}
	if l.calls >= l.places {
		took = max(took, now.Sub(l.moved)) // calls may take longer than they used to
	}
	return min(int(float64(lineTime)*float64(l.places)/float64(took)), lineMost)
}

// learn adds to what is known of how long calls take.
func (l *lane) learn(took time.Duration) {
	took = max(took, time.Microsecond)
	if l.took == 0 {
		l.took = took
	}
	l.took += (took - l.took) / 8
}

func (l *lane) idle(now time.Time) bool {
	return l.calls+l.waiting+l.ahead(notify.Low) == 0 && l.behind == 0 && now.Sub(l.moved) >= laneIdle
}

// waiter is a flight in line.
type waiter struct {
	flight
	since time.Time
	turn  *turn  // its project's
	full  string // the scope that has no place for it
	// answer gets one: whether it has its place.
	answer chan bool
}

// line is who waits for a place of a channel: the urgent ahead of the others, and
// then whoever has waited longest.
type line []*waiter

// turn is a project's turn in a channel's line: which of all places it was last
// given, 0 before the first.
type turn struct{ last uint64 }

// next returns who is to have the next place, -1 for nobody: of the most urgent for
// whom there is one the first of that project whose last turn was the longest ago.
// However long what projects flood a channel with has waited, and however many do,
// the others do not wait for all of it.
func (l line) next() int {
	first := -1
	for i, w := range l {
		if first >= 0 && w.priority != l[first].priority {
			break
		}
		if first >= 0 && w.turn.last >= l[first].turn.last {
			continue
		}
		switch full := w.flight.full(); {
		case full == nil:
			first = i
		case full == w.lanes[0] && full.calls >= full.places:
			return first // the channel has no place for anybody
		}
	}
	return first
}

func (l line) insert(w *waiter) line {
	at, _ := slices.BinarySearchFunc(l, w, func(a, b *waiter) int {
		if a.priority != b.priority {
			return int(a.priority) - int(b.priority)
		}
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		return -1 // behind its like
	})
	for _, lane := range w.lanes {
		lane.waiting++
	}
	return slices.Insert(l, at, w)
}

func (l line) remove(i int) line {
	for _, lane := range l[i].lanes {
		lane.waiting--
	}
	return slices.Delete(l, i, i+1)
}
