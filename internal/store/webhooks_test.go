package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/secret"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func (d *db) webhook(project string) store.Webhook {
	d.t.Helper()
	w, err := d.CreateWebhook(d.t.Context(), store.Webhook{ID: uuid.New(), Project: project, URL: "https://example.com"}, secret.New("whsec_x"))
	if err != nil {
		d.t.Fatal(err)
	}
	return w
}

func TestAProjectMayHaveSoManyWebhooks(t *testing.T) {
	t.Parallel()
	d := open(t)
	for range store.MaxWebhooks {
		d.webhook("default")
	}
	_, err := d.CreateWebhook(t.Context(), store.Webhook{ID: uuid.New(), Project: "default", URL: "https://example.com"}, secret.New("whsec_x"))
	if !errors.Is(err, store.ErrTooManyWebhooks) || store.Classify(err) != store.Other {
		t.Errorf("one more: %v", err)
	}
	d.webhook("another")
}

func TestEventsAboutWebhooksAreDeletedWhenTheyAreOldAndMissed(t *testing.T) {
	t.Parallel()
	d := open(t)
	old, young := d.webhook("default"), d.webhook("default")
	for id, at := range map[uuid.UUID]time.Time{old.ID: now().Add(-40 * day), young.ID: now()} {
		if because, err := d.WebhookFailed(t.Context(), id, true, at); because != store.WebhookGone || err != nil {
			t.Fatalf("%q, %v", because, err)
		}
	}
	gone := one[int64](d, "select id from dispatcher.events where notification_id = $1", old.ID)
	if _, err := d.Expire(t.Context(), now().Add(-30*day), now(), 100); err != nil {
		t.Fatal(err)
	}
	if left := one[uuid.UUID](d, "select notification_id from dispatcher.events"); left != young.ID {
		t.Errorf("the event about %s is left, want %s", left, young.ID)
	}
	if oldest, _, err := d.EventBounds(t.Context(), "default"); err != nil || oldest != gone {
		t.Errorf("readers before %d miss something: told %d, %v", gone, oldest, err)
	}
}

func TestAPositionIsFoundByItsInstant(t *testing.T) {
	t.Parallel()
	d := open(t)
	if at, err := d.PositionAt(t.Context(), now()); at != 0 || err != nil {
		t.Errorf("without events: %d, %v", at, err)
	}
	d.exec(`insert into dispatcher.events (at, notification_id, project, type)
		select now() - interval '1 hour' * (100 - i), gen_random_uuid(), 'default', 'sent' from generate_series(1, 100) i`)
	d.exec("delete from dispatcher.events where id % 7 = 0") // positions have holes
	for _, hours := range []int{200, 99, 93, 50, 1, 0} {
		since := now().Add(-time.Duration(hours)*time.Hour - time.Second)
		at, err := d.PositionAt(t.Context(), since)
		if err != nil {
			t.Fatal(err)
		}
		if n := d.count("select count(*) from dispatcher.events where id > $1 and at < $2::timestamptz - interval '2 minutes'", at, since); n != 0 {
			t.Errorf("%d hours ago: %d events after %d are older", hours, n, at)
		}
		if n := d.count("select count(*) from dispatcher.events where id <= $1 and at >= $2", at, since); n != 0 {
			t.Errorf("%d hours ago: %d events up to %d are missed", hours, n, at)
		}
	}
}
