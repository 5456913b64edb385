package stream

import (
	"context"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Start is where a follower begins.
type Start int

// The starts.
const (
	// AtPosition is after the position in the filter.
	AtPosition Start = iota
	// AtOldest is the oldest position after which nothing is missing; of a
	// notification, its first event.
	AtOldest
	// AtNow is after all that has happened so far.
	AtNow
)

// Resolve returns the position of a start, and [store.ErrEventsGone] or
// [store.ErrEventsAhead] for a position that cannot be followed from.
func Resolve(ctx context.Context, source Source, f store.EventFilter, start Start) (int64, error) {
	oldest, newest, err := source.EventBounds(ctx, f.Project)
	if err != nil {
		return 0, err
	}
	whole := f.Notification == (topic{}).notification
	switch {
	case start == AtNow:
		return newest, nil
	case start == AtOldest && whole:
		return oldest, nil
	case start == AtOldest:
		return 0, nil
	case f.After > newest:
		return 0, store.ErrEventsAhead
	case f.After < oldest && whole:
		return 0, store.ErrEventsGone
	}
	return f.After, nil
}

// Subscription is one follower's view of the events. Its methods are for one
// goroutine.
type Subscription struct {
	hub    *Hub
	signal chan struct{}

	// Under the hub's lock.
	filter  store.EventFilter // After is how far the follower has come
	joined  bool              // events are handed to it; before, it reads them itself
	slow    bool
	pending []*store.LoggedEvent
}

// Subscribe follows the events of a filter; its limit is not used. The errors are
// [ErrClosed] and those of [Resolve]. The caller must call
// [Subscription.Close].
func (h *Hub) Subscribe(ctx context.Context, f store.EventFilter, start Start) (*Subscription, error) {
	var err error
	if f.After, err = Resolve(ctx, h.source, f, start); err != nil {
		return nil, err
	}
	f.Limit = readLimit
	s := &Subscription{hub: h, filter: f, signal: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	h.subs[s] = struct{}{}
	select {
	case h.wanted <- struct{}{}:
	default:
	}
	return s, nil
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.leave(s)
	delete(s.hub.subs, s)
}

// Position is how far the follower has come: the position of the last event that
// [Subscription.Next] returned, or a later one before which there is nothing
// for it.
func (s *Subscription) Position() int64 {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.filter.After
}

// Next returns the next events, in order. It returns none when wait is over or
// a stretch without any has been passed, which is an occasion to tell the
// follower its position. The events are shared and must not be changed. Errors
// are ctx's, [ErrClosed], [ErrSlow], and those of the source while the follower
// is behind.
func (s *Subscription) Next(ctx context.Context, wait time.Duration) ([]*store.LoggedEvent, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		events, head, err := s.take()
		if err != nil || len(events) > 0 {
			return events, err
		}
		if head != caughtUp {
			page, moved, err := s.page(ctx, head)
			if err != nil || len(page) > 0 || moved {
				return page, err
			}
			if s.mayTake() {
				continue
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			events, _, err := s.take() // which also brings the position up to date
			return events, err
		case <-s.signal:
		}
	}
}

// caughtUp stands for the head where there is nothing to read from the source.
const caughtUp = -1

// take returns what the hub has for the follower, whom it joins if the ring
// reaches back to its position. Else it returns how far the hub had read before
// now, 0 if it does not read yet.
func (s *Subscription) take() (events []*store.LoggedEvent, head int64, err error) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return nil, 0, ErrClosed
	case s.slow:
		return nil, 0, ErrSlow
	case s.joined:
		events, s.pending = s.pending, nil
	case h.live && s.filter.After >= h.floor:
		events = s.join()
	case h.live:
		return nil, h.head, nil
	default:
		return nil, 0, nil
	}
	s.filter.After = max(s.filter.After, h.head)
	return events, caughtUp, nil
}

// join makes the hub hand events to the follower, and returns those of the ring
// that it has not seen.
func (s *Subscription) join() []*store.LoggedEvent {
	var events []*store.LoggedEvent
	for _, e := range s.hub.ring {
		if e.Seq > s.filter.After && s.filter.Matches(e) {
			events = append(events, e)
		}
	}
	s.joined = true
	t := s.topic()
	if s.hub.joined[t] == nil {
		s.hub.joined[t] = map[*Subscription]struct{}{}
	}
	s.hub.joined[t][s] = struct{}{}
	return events
}

// page reads from the source. Whatever was committed when the hub had come to
// head is in a page that ends because there is no more. moved says that a
// stretch without events for the follower was passed, and more are to come.
func (s *Subscription) page(ctx context.Context, head int64) (events []*store.LoggedEvent, moved bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	page, err := s.hub.source.Events(ctx, s.filter)
	if err != nil {
		return nil, false, err
	}
	after := page.Next
	if !page.More {
		after = max(after, head)
	}
	s.hub.mu.Lock()
	s.filter.After = after
	s.hub.mu.Unlock()
	events = make([]*store.LoggedEvent, len(page.Events))
	for i := range page.Events {
		events[i] = &page.Events[i]
	}
	return events, page.More, nil
}

// mayTake reports whether the hub reads, so that there is no need to wait for it.
func (s *Subscription) mayTake() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.hub.live
}

// topic is what the subscription follows.
func (s *Subscription) topic() topic { return topic{s.filter.Project, s.filter.Notification} }

// wake tells the follower to look. It never blocks.
func (s *Subscription) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}
