// Package stream hands the events of notifications to those who follow them. A
// process reads the events once, however many follow, and only while somebody
// does. A follower starts at any position that is still kept, misses nothing
// after it and sees nothing twice: positions are in the order of commits.
//
// The hub polls. A NOTIFY with each flush of events would tell it sooner, but it
// costs a flush of one event a fifth of its throughput, whether anybody listens
// or not, and what it saves is half of [DefaultInterval].
package stream

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Defaults of a [Config].
const (
	DefaultInterval = 200 * time.Millisecond
	DefaultRing     = 4096
	DefaultBuffer   = 1024
)

// readLimit is how many events the hub reads at once, and a follower who is
// behind; readTimeout is how long that may take.
const (
	readLimit   = 1000
	readTimeout = 5 * time.Second
)

// Errors that end a [Subscription].
var (
	// ErrClosed says that the process stops.
	ErrClosed = errors.New("the event stream is closed")
	// ErrSlow says that the follower did not keep up, or the process with it. It may come back with the
	// last position that it has seen.
	ErrSlow = errors.New("the follower does not keep up")
)

// Source is where the events are; [store.Store] is one.
type Source interface {
	// EventBounds returns the oldest position of a project after which nothing has
	// been deleted, and the newest position of all.
	EventBounds(ctx context.Context, project string) (oldest, newest int64, err error)
	// Events reads a page for a follower who is behind.
	Events(ctx context.Context, f store.EventFilter) (store.EventPage, error)
	// TailEvents reads the events of all projects after a position.
	TailEvents(ctx context.Context, after int64, limit int) ([]store.LoggedEvent, error)
	// NewestEvent returns the newest position of all.
	NewestEvent(ctx context.Context) (int64, error)
}

// Config configures a [Hub]. Zero fields take their defaults.
type Config struct {
	// Interval is how often the source is asked while somebody follows.
	Interval time.Duration
	// Ring is how many of the latest events are kept in memory at least. A follower who is
	// further behind reads the source.
	Ring int
	// Buffer is how many events may wait for a follower who has caught up.
	Buffer int
	// Log is told when the source fails; nil discards.
	Log *slog.Logger
	// Guard is what panics are told to; nil for one that writes to Log.
	Guard *panics.Guard
}

// Hub reads events and hands them out. It is made by [New] and safe for
// concurrent use.
type Hub struct {
	source Source
	cfg    Config
	wanted chan struct{} // somebody has begun to follow

	mu     sync.Mutex
	closed bool
	live   bool // ring holds every event after floor and up to head
	floor  int64
	head   int64
	ring   []*store.LoggedEvent
	subs   map[*Subscription]struct{}
	joined map[topic]map[*Subscription]struct{}
}

// topic is what is followed: a project, or one notification of it.
type topic struct {
	project      string
	notification uuid.UUID
}

// New returns a hub. Nothing is read before [Hub.Run].
func New(source Source, c Config) *Hub {
	if c.Interval <= 0 {
		c.Interval = DefaultInterval
	}
	if c.Ring <= 0 {
		c.Ring = DefaultRing
	}
	if c.Buffer <= 0 {
		c.Buffer = DefaultBuffer
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Guard == nil {
		c.Guard = panics.New(c.Log, nil)
	}
	return &Hub{
		source: source, cfg: c, wanted: make(chan struct{}, 1),
		subs: map[*Subscription]struct{}{}, joined: map[topic]map[*Subscription]struct{}{},
	}
}

// Run reads events until ctx ends, and then closes the hub. It waits, without
// asking the source, as long as nobody follows.
func (h *Hub) Run(ctx context.Context) {
	defer h.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wanted:
		}
		h.follow(ctx)
	}
}

// Close ends all subscriptions at once, and refuses new ones.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for s := range h.subs {
		s.wake()
	}
}

// follow reads until nobody follows or ctx ends.
func (h *Hub) follow(ctx context.Context) {
	tick := time.NewTicker(h.cfg.Interval)
	defer tick.Stop()
	failing := false
	for !h.idle() {
		var full bool
		err := h.cfg.Guard.Round(ctx, "read events", func(ctx context.Context) (err error) {
			full, err = h.read(ctx)
			return err
		})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			h.cfg.Log.WarnContext(ctx, "events cannot be read", slog.Any("error", err))
		case err == nil && failing:
			h.cfg.Log.InfoContext(ctx, "events can be read again")
		}
		failing = err != nil
		if full {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// idle reports whether nobody follows, and forgets what was read then.
func (h *Hub) idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) > 0 {
		return false
	}
	h.live, h.ring = false, nil
	return true
}

// read reads what is new and reports whether there may be more at once.
func (h *Hub) read(ctx context.Context) (full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	h.mu.Lock()
	live, head := h.live, h.head
	h.mu.Unlock()
	if !live {
		newest, err := h.source.NewestEvent(ctx)
		if err == nil {
			h.start(newest)
		}
		return false, err
	}
	events, err := h.source.TailEvents(ctx, head, readLimit)
	if err != nil {
		return false, err
	}
	h.push(events)
	return len(events) == readLimit, nil
}

// start begins an empty ring at a position.
func (h *Hub) start(position int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live, h.floor, h.head, h.ring = true, position, position, nil
	for s := range h.subs {
		s.wake()
	}
}

// push puts events into the ring and hands them to those who follow them.
func (h *Hub) push(events []store.LoggedEvent) {
	if len(events) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	whole := false
	defer func() {
		if !whole {
			h.interrupt()
		}
	}()
	for i := range events {
		e := &events[i]
		h.ring = append(h.ring, e)
		h.head = e.Seq
		h.hand(e, topic{project: e.Project})
		h.hand(e, topic{e.Project, e.ID.Notification})
	}
	// Not with every event: what falls out is freed with its array.
	if over := len(h.ring) - h.cfg.Ring; over > h.cfg.Ring/2 {
		h.floor = h.ring[over-1].Seq
		h.ring = slices.Clone(h.ring[over:])
	}
	whole = true
}

// interrupt ends what is handed out when a panic has left it open how far that had
// come. Followers come back with their positions. The lock is held.
func (h *Hub) interrupt() {
	h.live, h.ring = false, nil
	for s := range h.subs {
		if s.joined {
			s.slow, s.pending = true, nil
			h.leave(s)
			s.wake()
		}
	}
}

// hand gives an event to those who follow a topic.
func (h *Hub) hand(e *store.LoggedEvent, t topic) {
	for s := range h.joined[t] {
		if e.Seq <= s.filter.After || !s.filter.Matches(e) {
			continue
		}
		if len(s.pending) >= h.cfg.Buffer {
			s.slow, s.pending = true, nil
			h.leave(s)
		} else {
			s.pending = append(s.pending, e)
		}
		s.wake()
	}
}

// leave takes a subscription out of its topic.
func (h *Hub) leave(s *Subscription) {
	t := s.topic()
	delete(h.joined[t], s)
	if len(h.joined[t]) == 0 {
		delete(h.joined, t)
	}
}
