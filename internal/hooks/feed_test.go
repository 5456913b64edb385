package hooks_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/hooks"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// mortal is a store whose consumer dies each second time, when it has read the
// events and made the calls, but before they are committed.
type mortal struct {
	*store.Store
	mu   sync.Mutex
	runs int
	died int
}

func (m *mortal) FeedWebhooks(ctx context.Context, limit int, makeCalls func([]store.WebhookEvent) ([]store.Acceptance, error)) (bool, error) {
	ctx, die := context.WithCancel(ctx)
	defer die()
	return m.Store.FeedWebhooks(ctx, min(limit, 7), func(events []store.WebhookEvent) ([]store.Acceptance, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.runs++; m.runs%2 == 1 {
			m.died++
			die()
		}
		return makeCalls(events)
	})
}

func TestEveryEventIsToldOnceThoughConsumersRaceAndDie(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all, _ := w.register("acme", "all")
	some, _ := w.register("acme", "some", "sent")
	other, _ := w.register("rival", "other")
	doomed := &mortal{Store: w.store}
	ctx, stop := context.WithCancel(t.Context())
	var consumers sync.WaitGroup
	for range 3 {
		c := w.config()
		c.Store = doomed
		consumers.Go(func() { hooks.New(c).Run(ctx) })
	}
	defer consumers.Wait()
	defer stop()
	var ids []uuid.UUID
	for range 30 {
		ids = append(ids, w.send("acme"))
	}
	w.ended(ids...)
	want := w.count("select count(*) from dispatcher.events where project = 'acme'")
	w.eventually("all is told", func() bool {
		return len(w.receiver.at("/all")) >= want && len(w.receiver.at("/some")) >= len(ids) &&
			w.count("select count(*) from dispatcher.deliveries where project like '~%' and not final") == 0
	})
	if doomed.died < 3 {
		t.Fatalf("the consumer died %d times", doomed.died)
	}
	stop()
	consumers.Wait()
	w.feed() // what a feedback would be made of
	told := map[string]bool{}
	for _, c := range w.receiver.at("/all") {
		if id, _ := c.body.Data["id"].(string); told[id] || told[c.id] || !strings.HasPrefix(id, "acme/") {
			t.Errorf("event %s, message %s: told twice", id, c.id)
		} else {
			told[id], told[c.id] = true, true
		}
	}
	if len(told) != 2*want {
		t.Errorf("%d of %d events told", len(told)/2, want)
	}
	for _, c := range w.receiver.at("/some") {
		if c.body.Type != "notification.sent" || c.body.Data["status"] != "sent" || c.body.Data["reference"] != "order-1" || c.body.Data["channel"] != "sms" {
			t.Errorf("told %s", c.raw)
		}
	}
	if n := len(w.receiver.at("/some")); n != len(ids) {
		t.Errorf("%d told of what was sent, want %d", n, len(ids))
	}
	if n := len(w.receiver.at("/other")); n != 0 || len(w.calls(other)) != 0 {
		t.Errorf("another project's webhook was told of %d events", n)
	}
	if n := w.count("select count(*) from dispatcher.events"); n != want {
		t.Errorf("%d events, %d of them about webhooks", n, n-want)
	}
	if n := w.count("select count(*) from dispatcher.notifications where project = '~acme'"); n != want+len(ids) {
		t.Errorf("%d calls for %d events of two webhooks", n, want+len(ids))
	}
	for _, h := range []store.Webhook{all, some} {
		for _, c := range w.calls(h) {
			if len(c.Attempts) != 1 || c.Attempts[0].HTTPStatus != 200 || c.EventID == "" || c.NotificationID == uuid.Nil {
				t.Errorf("logged as %+v", c)
			}
		}
	}
	records, err := w.store.List(t.Context(), store.Filter{Project: "acme", Limit: 200})
	if err != nil || len(records) != len(ids) {
		t.Errorf("the project shows %d notifications (%v), want %d", len(records), err, len(ids))
	}
}

func TestCallsAndCursorAreWrittenTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, _ := w.register("acme", "hook")
	w.ended(w.send("acme"))
	const position = "select position from dispatcher.webhook_cursor"
	before := w.count(position)
	// The calls are written by now; moving the cursor fails.
	w.exec(`create function dispatcher.refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$`)
	w.exec(`create trigger refuse before update on dispatcher.webhook_cursor for each row execute function dispatcher.refuse()`)
	if err := w.service.Feed(t.Context()); err == nil {
		t.Fatal("the cursor was moved")
	}
	if n := len(w.calls(h)); n != 0 || w.count(position) != before {
		t.Errorf("%d calls without their cursor", n)
	}
	w.exec(`drop trigger refuse on dispatcher.webhook_cursor`)
	w.feed()
	want := w.count("select count(*) from dispatcher.events")
	if n := len(w.calls(h)); n != want || w.count(position) == before {
		t.Errorf("%d calls for %d events", n, want)
	}
	w.feed()
	if n := len(w.calls(h)); n != want {
		t.Errorf("%d calls for %d events after another feed", n, want)
	}
}

func TestOneConsumerAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("acme", "hook")
	w.ended(w.send("acme"))
	inside := false
	_, err := w.store.FeedWebhooks(t.Context(), 100, func(events []store.WebhookEvent) ([]store.Acceptance, error) {
		inside = true
		more, err := w.store.FeedWebhooks(t.Context(), 100, func([]store.WebhookEvent) ([]store.Acceptance, error) {
			t.Error("a second consumer read the same events")
			return nil, nil
		})
		if more || err != nil {
			t.Errorf("the second consumer: %v, %v", more, err)
		}
		return nil, nil
	})
	if err != nil || !inside {
		t.Errorf("the first consumer: %v, %v", inside, err)
	}
}

func TestWhatHappenedBeforeAWebhookWasRegisteredIsNotTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	older, _ := w.register("acme", "older")
	w.ended(w.send("acme"))
	h, _ := w.register("acme", "hook")
	w.feed()
	if n := len(w.calls(h)); n != 0 {
		t.Errorf("told of %d events", n)
	}
	if n := len(w.calls(older)); n != w.count("select count(*) from dispatcher.events") {
		t.Errorf("one that was there is told of %d events", n)
	}
}

func TestTheScheduleTriesEightTimesInADay(t *testing.T) {
	t.Parallel()
	waits := hooks.Schedule()
	if tries := 1 + len(waits); tries < 8 {
		t.Errorf("%d tries", tries)
	}
	if !slices.IsSorted(waits) || waits[0] > 10*time.Second {
		t.Errorf("waits %v", waits)
	}
	var total, longest time.Duration
	for _, d := range waits {
		total, longest = total+d, longest+d+d/10
	}
	if total < 24*time.Hour || longest > 36*time.Hour {
		t.Errorf("the last try comes after %v to %v", total, longest)
	}
}
