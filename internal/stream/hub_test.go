package stream_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/stream"
)

// counting counts what is asked of a source.
type counting struct {
	stream.Source
	tails, rows, pages atomic.Int64
}

func (c *counting) TailEvents(ctx context.Context, after int64, limit int) ([]store.LoggedEvent, error) {
	events, err := c.Source.TailEvents(ctx, after, limit)
	c.tails.Add(1)
	c.rows.Add(int64(len(events)))
	return events, err
}

func (c *counting) Events(ctx context.Context, f store.EventFilter) (store.EventPage, error) {
	c.pages.Add(1)
	return c.Source.Events(ctx, f)
}

func TestAThousandEventsReachFiftyFollowersAndAreReadOnce(t *testing.T) {
	t.Parallel()
	const followers, events, flush = 50, 1000, 50
	d := open(t)
	source := &counting{Source: d}
	h := start(t, source, stream.Config{})
	var all sync.WaitGroup
	seen := make([][]int64, followers)
	for i := range followers {
		sub := subscribe(t, h, store.EventFilter{Project: "acme"}, stream.AtNow)
		all.Go(func() { seen[i] = take(t, sub, events) })
	}
	for range events / flush {
		if _, err := d.accept(t.Context(), "acme", flush); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	want := d.positions(t, store.EventFilter{Project: "acme"})
	for i := range seen {
		if !slices.Equal(seen[i], want) {
			t.Errorf("follower %d saw %d events, want %d", i, len(seen[i]), len(want))
		}
	}
	if n := source.rows.Load(); n > events {
		t.Errorf("the hub read %d events, want at most %d", n, events)
	}
	if n := source.pages.Load(); n > 3*followers {
		t.Errorf("followers who were not behind read %d pages", n)
	}
}

func TestASlowFollowerIsDroppedAndResumesWhereItWas(t *testing.T) {
	t.Parallel()
	d := open(t)
	h := start(t, d, stream.Config{Buffer: 3, Ring: 2})
	slow := subscribe(t, h, store.EventFilter{Project: "acme"}, stream.AtNow)
	fast := subscribe(t, h, store.EventFilter{Project: "acme"}, stream.AtNow)
	write := func() {
		t.Helper()
		if _, err := d.accept(t.Context(), "acme", 1); err != nil {
			t.Fatal(err)
		}
		take(t, fast, 1)
	}
	write()
	first := take(t, slow, 1)
	for !slow.Joined() {
		if _, err := slow.Next(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		write()
	}
	position := slow.Position()
	if _, err := slow.Next(t.Context(), time.Minute); !errors.Is(err, stream.ErrSlow) {
		t.Fatalf("a follower who is 10 events behind a buffer of 3 gets %v, want ErrSlow", err)
	}
	again := subscribe(t, h, store.EventFilter{Project: "acme", After: position}, stream.AtPosition)
	seen := append(first, take(t, again, 10)...)
	if diff := cmp.Diff(d.positions(t, store.EventFilter{Project: "acme"}), seen); diff != "" {
		t.Error(diff)
	}
}

func TestFiltersLeaveOut(t *testing.T) {
	t.Parallel()
	d := open(t)
	h := start(t, d, stream.Config{})
	mine, err := d.accept(t.Context(), "acme", 2)
	if err != nil {
		t.Fatal(err)
	}
	others, err := d.accept(t.Context(), "other", 2)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		filter store.EventFilter
		want   []string
	}{
		{"a project", store.EventFilter{Project: "acme"}, []string{"accepted", "accepted", "sent", "sent"}},
		{"a notification", store.EventFilter{Project: "acme", Notification: mine[0].Notification}, []string{"accepted", "sent"}},
		{"another's notification", store.EventFilter{Project: "acme", Notification: others[0].Notification}, nil},
		{"a type", store.EventFilter{Project: "acme", Types: []string{"sent"}}, []string{"sent", "sent"}},
		{"the end", store.EventFilter{Project: "acme", Final: true}, []string{"sent", "sent"}},
		{"nobody's project", store.EventFilter{Project: "nobody"}, nil},
	}
	// Those who begin now get by the hub what the others read in pages.
	early := make([]*stream.Subscription, len(tests))
	for i, tt := range tests {
		early[i] = subscribe(t, h, tt.filter, stream.AtOldest)
	}
	for _, deliveries := range [][]store.Delivery{others, mine} {
		if err := d.finish(t.Context(), deliveries); err != nil {
			t.Fatal(err)
		}
	}
	end := d.newest(t)
	for i, tt := range tests {
		for name, sub := range map[string]*stream.Subscription{"early": early[i], "late": subscribe(t, h, tt.filter, stream.AtOldest)} {
			var types []string
			for sub.Position() < end || len(types) < len(tt.want) {
				events, err := sub.Next(t.Context(), time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range events {
					types = append(types, e.Type)
					if e.Project != tt.filter.Project {
						t.Errorf("%s: an event of %s", tt.name, e.Project)
					}
				}
			}
			if diff := cmp.Diff(tt.want, types); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", tt.name, name, diff)
			}
		}
	}
}

func TestPositionsThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	d := open(t)
	h := start(t, d, stream.Config{})
	if _, err := d.accept(t.Context(), "acme", 1); err != nil {
		t.Fatal(err)
	}
	_, err := h.Subscribe(t.Context(), store.EventFilter{Project: "acme", After: d.newest(t) + 1}, stream.AtPosition)
	if !errors.Is(err, store.ErrEventsAhead) {
		t.Errorf("a position that nothing has reached: %v, want ErrEventsAhead", err)
	}
	h.Close()
	if _, err := h.Subscribe(t.Context(), store.EventFilter{Project: "acme"}, stream.AtNow); !errors.Is(err, stream.ErrClosed) {
		t.Errorf("a closed hub: %v, want ErrClosed", err)
	}
}

// script is a source in memory.
type script struct {
	mu     sync.Mutex
	events []store.LoggedEvent
	asked  int
	err    error
}

func (s *script) ask() ([]store.LoggedEvent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.events, s.err
}

// count is how often it was asked.
func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *script) set(err error, events ...store.LoggedEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events, s.err = append(s.events, events...), err
}

func (s *script) EventBounds(context.Context, string) (int64, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 0, int64(len(s.events)), nil
}

func (s *script) NewestEvent(context.Context) (int64, error) {
	events, err := s.ask()
	return int64(len(events)), err
}

func (s *script) TailEvents(_ context.Context, after int64, _ int) ([]store.LoggedEvent, error) {
	events, err := s.ask()
	return events[after:], err
}

func (s *script) Events(_ context.Context, f store.EventFilter) (store.EventPage, error) {
	events, err := s.ask()
	page := store.EventPage{Next: int64(len(events))}
	for _, e := range events[f.After:] {
		if f.Matches(&e) {
			page.Events = append(page.Events, e)
		}
	}
	return page, err
}

func event(seq int64) store.LoggedEvent {
	return store.LoggedEvent{Seq: seq, Event: store.Event{Project: "acme", ID: store.DeliveryID{Notification: uuid.Max}}}
}

// hub runs a hub over a script until the bubble ends.
func hub(t *testing.T, s *script) *stream.Hub {
	t.Helper()
	h := stream.New(s, stream.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	go h.Run(ctx)
	t.Cleanup(func() { cancel(); synctest.Wait() })
	return h
}

func TestNothingIsReadWhereNobodyFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		h := hub(t, s)
		time.Sleep(time.Hour)
		if n := s.count(); n != 0 {
			t.Errorf("asked %d times with no follower", n)
		}
		sub, err := h.Subscribe(t.Context(), store.EventFilter{Project: "acme"}, stream.AtNow)
		if err != nil {
			t.Fatal(err)
		}
		s.set(nil, event(1))
		if events, err := sub.Next(t.Context(), time.Hour); err != nil || len(events) != 1 {
			t.Fatalf("%d events, %v", len(events), err)
		}
		time.Sleep(time.Minute)
		if n := s.count(); n < 60 {
			t.Errorf("asked %d times in a minute with a follower", n)
		}
		sub.Close()
		time.Sleep(time.Second)
		before := s.count()
		time.Sleep(time.Hour)
		if n := s.count() - before; n != 0 {
			t.Errorf("asked %d times after the last follower went", n)
		}
	})
}

func TestAQuietFollowerIsToldHowFarItHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		h := hub(t, s)
		sub, err := h.Subscribe(t.Context(), store.EventFilter{Project: "other"}, stream.AtNow)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		for i := range 2 { // it joins, then waits
			began := time.Now()
			s.set(nil, event(int64(i+1)))
			for time.Since(began) < 15*time.Second {
				if events, err := sub.Next(t.Context(), 15*time.Second); err != nil || len(events) != 0 {
					t.Fatalf("%d events, %v", len(events), err)
				}
			}
		}
		if got := sub.Position(); got != 2 {
			t.Errorf("position %d, want 2", got)
		}
	})
}

func TestFollowersOutliveASourceThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		h := hub(t, s)
		sub, err := h.Subscribe(t.Context(), store.EventFilter{Project: "acme"}, stream.AtNow)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		if _, err := sub.Next(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		s.set(errors.New("away"), event(1))
		if events, err := sub.Next(t.Context(), time.Minute); err != nil || len(events) != 0 {
			t.Fatalf("%d events, %v", len(events), err)
		}
		s.set(nil, event(2))
		events, err := sub.Next(t.Context(), time.Minute)
		if diff := cmp.Diff([]int64{1, 2}, seqs(events)); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}

func TestTheEndOfRunEndsFollowersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := stream.New(&script{}, stream.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { h.Run(ctx) })
		for range 3 {
			sub, err := h.Subscribe(t.Context(), store.EventFilter{Project: "acme"}, stream.AtNow)
			if err != nil {
				t.Fatal(err)
			}
			ended.Go(func() {
				defer sub.Close()
				if _, err := sub.Next(t.Context(), time.Hour); !errors.Is(err, stream.ErrClosed) {
					t.Errorf("a follower of a closed hub gets %v", err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		cancel()
		ended.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("the end took %v", took)
		}
	})
}

func TestAFollowerFarBehindReadsPageAfterPage(t *testing.T) {
	t.Parallel()
	d := open(t)
	_, err := d.Pool().Exec(t.Context(), `insert into dispatcher.events (at, notification_id, project, type)
		select now(), gen_random_uuid(), 'acme', 'accepted' from generate_series(1, 2500)`)
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, d, stream.Config{})
	ahead := subscribe(t, h, store.EventFilter{Project: "acme"}, stream.AtNow)
	for !ahead.Joined() { // the hub reads now, and is at the end
		if _, err := ahead.Next(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	seen := take(t, subscribe(t, h, store.EventFilter{Project: "acme"}, stream.AtOldest), 2500)
	if !slices.Equal(seen, d.positions(t, store.EventFilter{Project: "acme"})) {
		t.Error("something is missing or there twice")
	}
}
