package stream

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// memory is a source of events that nobody stores.
type memory struct {
	mu     sync.Mutex
	events []store.LoggedEvent
	panics int // so many reads
}

// happen adds an event.
func (m *memory) happen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := store.LoggedEvent{Seq: int64(len(m.events)) + 1}
	e.Project, e.ID.Notification = "acme", uuid.New()
	m.events = append(m.events, e)
}

func (m *memory) after(position int64) []store.LoggedEvent { return m.events[position:] }

func (m *memory) EventBounds(context.Context, string) (oldest, newest int64, err error) {
	newest, err = m.NewestEvent(context.Background())
	return 0, newest, err
}

func (m *memory) NewestEvent(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.events)), nil
}

func (m *memory) Events(_ context.Context, f store.EventFilter) (store.EventPage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return store.EventPage{Events: m.after(f.After), Next: int64(len(m.events))}, nil
}

func (m *memory) TailEvents(_ context.Context, after int64, _ int) ([]store.LoggedEvent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.panics > 0 {
		m.panics--
		panic("no")
	}
	return m.after(after), nil
}

// following runs a test with a hub over a source, and somebody who follows it live.
func following(t *testing.T, test func(t *testing.T, m *memory, h *Hub, s *Subscription)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		h := New(m, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.Run(ctx) })
		s, err := h.Subscribe(ctx, store.EventFilter{Project: "acme"}, AtNow)
		if err != nil {
			t.Fatal(err)
		}
		m.happen()
		for got := 0; got == 0 || !s.Joined(); {
			events, err := s.Next(ctx, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			got += len(events)
		}
		test(t, m, h, s)
		s.Close()
		cancel()
		running.Wait()
	})
}

func TestAFollowerOutlivesAReadThatPanics(t *testing.T) {
	t.Parallel()
	following(t, func(t *testing.T, m *memory, _ *Hub, s *Subscription) {
		m.mu.Lock()
		m.panics = 1
		m.mu.Unlock()
		time.Sleep(time.Second) //nolint:forbidigo // by the clock of the bubble
		m.happen()
		if events, err := s.Next(t.Context(), 2*panics.Pause); err != nil || len(events) != 1 || events[0].Seq != 2 {
			t.Errorf("%d events, %v, want the second one", len(events), err)
		}
	})
}

// How far events were handed out is not known after a panic in the midst of it.
func TestAFollowerIsSentBackToItsPositionAfterAPanicThatMayHaveCostItEvents(t *testing.T) {
	t.Parallel()
	following(t, func(t *testing.T, m *memory, h *Hub, s *Subscription) {
		position := s.Position()
		h.mu.Lock()
		h.joined[topic{project: "acme"}][nil] = struct{}{} // which cannot be handed anything
		h.mu.Unlock()
		m.happen()
		if events, err := s.Next(t.Context(), time.Minute); !errors.Is(err, ErrSlow) {
			t.Fatalf("%d events, %v, want ErrSlow", len(events), err)
		}
		h.mu.Lock()
		delete(h.joined, topic{project: "acme"})
		h.mu.Unlock()
		again, err := h.Subscribe(t.Context(), store.EventFilter{Project: "acme", After: position}, AtPosition)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if events, err := again.Next(t.Context(), time.Minute); err != nil || len(events) != 1 || events[0].Seq != 2 {
			t.Errorf("%d events, %v, want the second one", len(events), err)
		}
	})
}
