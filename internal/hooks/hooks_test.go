package hooks_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/notification-dispatcher/dispatcher/internal/hooks"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// verified reports whether a call is signed with a secret, as receivers find out.
func verified(t *testing.T, c received, key secret.Value) bool {
	t.Helper()
	w, err := standardwebhooks.NewWebhook(key.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	return w.Verify(c.raw, c.header) == nil
}

// try sends a test message and returns the call.
func (w *world) try(h store.Webhook, path string) received {
	w.t.Helper()
	n := len(w.receiver.at(path))
	if _, err := w.service.Test(w.t.Context(), h.Project, h.ID); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("a test message comes", func() bool { return len(w.receiver.at(path)) > n })
	return w.receiver.at(path)[n]
}

func TestCallsAreSignedWithBothSecretsDuringARotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, first := w.register("acme", "hook")
	_, stranger := w.register("acme", "other")
	c := w.try(h, "/hook")
	if c.body.Type != hooks.TypeTest || c.body.Data["webhook_id"] != h.ID.String() || c.id == "" {
		t.Errorf("test message %s %s", c.id, c.raw)
	}
	if !verified(t, c, first) || verified(t, c, stranger) {
		t.Error("not signed with the webhook's own secret")
	}
	_, second, err := w.service.Rotate(t.Context(), "acme", h.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if c = w.try(h, "/hook"); !verified(t, c, first) || !verified(t, c, second) {
		t.Error("not signed with both secrets during the overlap")
	}
	_, third, err := w.service.Rotate(t.Context(), "acme", h.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c = w.try(h, "/hook"); verified(t, c, first) || verified(t, c, second) || !verified(t, c, third) {
		t.Error("not signed with the newest secret alone after the overlap")
	}
}

func TestAFailedCallIsTriedAgainOnTheSchedule(t *testing.T) {
	t.Parallel()
	for status, name := range map[int]string{http.StatusNotFound: "the owner may mend it", http.StatusFound: "a redirect"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			h, _ := w.register("acme", "hook")
			w.receiver.answer("/hook", status)
			if _, err := w.service.Test(t.Context(), "acme", h.ID); err != nil {
				t.Fatal(err)
			}
			for i, want := range hooks.Schedule() {
				var c hooks.Call
				w.eventually("the call waits", func() bool {
					c = w.calls(h)[0]
					return len(c.Attempts) == i+1 && len(c.Waits) == 1 && c.Waits[0].Reason == notify.WaitBackoff
				})
				if got := c.Waits[0].Due.Sub(c.Waits[0].Since); got < want || got > want+want/10 {
					t.Errorf("wait %d is %v, want %v and at most a tenth more", i+1, got, want)
				}
				w.exec("update dispatcher.waits set due = clock_timestamp(), until = clock_timestamp()")
			}
			w.eventually("it is given up", func() bool { return !w.calls(h)[0].FinishedAt().IsZero() })
			c := w.calls(h)[0]
			if got, _ := c.Overall(); got != notify.Failed || len(c.Attempts) != 1+len(hooks.Schedule()) || c.Attempts[0].HTTPStatus != status {
				t.Errorf("%s after %d tries, the first answered with %d", got, len(c.Attempts), c.Attempts[0].HTTPStatus)
			}
			ids := map[string]bool{}
			for _, r := range w.receiver.at("/hook") {
				ids[r.id] = true
			}
			if len(ids) != 1 || w.webhook(h).FailingSince.IsZero() {
				t.Errorf("%d webhook-ids in one call's tries", len(ids))
			}
			w.receiver.answer("/hook", http.StatusNoContent)
			w.try(h, "/hook")
			w.eventually("it counts as well again", func() bool { return w.webhook(h).FailingSince.IsZero() })
		})
	}
}

func TestAnEndpointThatIsGoneIsDisabledAndItsProjectIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, _ := w.register("acme", "gone")
	w.register("acme", "watch", store.EventWebhookDisabled)
	w.receiver.answer("/gone", http.StatusGone)
	w.try(h, "/gone")
	w.eventually("it is disabled", func() bool { return !w.webhook(h).DisabledAt.IsZero() })
	if got := w.webhook(h).DisabledBecause; got != store.WebhookGone {
		t.Errorf("because %q", got)
	}
	page, err := w.store.Events(t.Context(), store.EventFilter{Project: "acme", Limit: 10})
	if err != nil || len(page.Events) != 1 || page.Events[0].Type != store.EventWebhookDisabled || page.Events[0].ID.Notification != h.ID || page.Events[0].Because != "gone" {
		t.Fatalf("events %+v, %v", page.Events, err)
	}
	w.feed()
	w.eventually("another webhook is told", func() bool { return len(w.receiver.at("/watch")) == 1 })
	if c := w.receiver.at("/watch")[0]; c.body.Type != hooks.TypeDisabled || c.body.Data["webhook_id"] != h.ID.String() || c.body.Data["because"] != "gone" {
		t.Errorf("told %s", c.raw)
	}
	if _, err := w.service.Test(t.Context(), "acme", h.ID); err != nil {
		t.Fatal(err)
	}
	w.eventually("a call to it ends", func() bool { return !w.calls(h)[0].FinishedAt().IsZero() })
	if c := w.calls(h)[0]; len(w.receiver.at("/gone")) != 1 || len(c.Attempts) != 1 || c.Attempts[0].ProviderCode != hooks.CodeDisabled {
		t.Errorf("it was called although it is disabled: %+v", c.Attempts)
	}
	on := true
	if _, err := w.service.Update(t.Context(), "acme", h.ID, store.WebhookChange{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	w.receiver.answer("/gone", http.StatusOK)
	w.try(h, "/gone")
	w.eventually("it is called again", func() bool { got, _ := w.calls(h)[0].Overall(); return got == notify.Delivered })
}

func TestAnEndpointThatFailsForDaysIsDisabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct {
		since    time.Duration
		failures int
		want     string
	}{
		"long":   {store.WebhookFailingFor + time.Minute, store.WebhookMaxFailures - 1, store.WebhookFailing},
		"recent": {store.WebhookFailingFor - time.Minute, 1000, ""},
		"rarely": {store.WebhookFailingFor + time.Minute, store.WebhookMaxFailures - 3, ""},
	} {
		h, _ := w.register("acme", name)
		w.receiver.answer("/"+name, http.StatusForbidden)
		w.exec(`update dispatcher.webhooks set failing_since = clock_timestamp() - $2::interval, failed_at = clock_timestamp() - interval '1 hour',
			failures = $3 where id = $1`, h.ID, c.since, c.failures)
		w.try(h, "/"+name)
		w.eventually(name+": the failure counts", func() bool {
			return w.count("select failures from dispatcher.webhooks where id = $1", h.ID) == c.failures+1
		})
		if _, err := w.service.Test(t.Context(), "acme", h.ID); err != nil { // at once: not counted
			t.Fatal(err)
		}
		w.eventually(name+": the second call is recorded", func() bool { return len(w.calls(h)[0].Attempts) == 1 })
		if got := w.webhook(h).DisabledBecause; got != c.want {
			t.Errorf("%s: disabled because %q, want %q", name, got, c.want)
		}
		if got := w.count("select failures from dispatcher.webhooks where id = $1", h.ID); got != c.failures+1 {
			t.Errorf("%s: a burst counts %d times", name, got-c.failures)
		}
	}
}

func TestReplaysSendTheSameMessageAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, _ := w.register("acme", "hook", "sent")
	w.ended(w.send("acme"))
	w.feed()
	w.eventually("it is told", func() bool { return len(w.receiver.at("/hook")) == 1 })
	if _, err := w.service.Replay(t.Context(), "acme", h.ID, w.calls(h)[0].Notification.ID); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is told again", func() bool { return len(w.receiver.at("/hook")) == 2 })
	since := time.Now()
	off, on := false, true
	if _, err := w.service.Update(t.Context(), "acme", h.ID, store.WebhookChange{Enabled: &off}); err != nil {
		t.Fatal(err)
	}
	w.ended(w.send("acme"), w.send("acme"), w.send("rival"))
	w.feed()
	if _, err := w.service.Update(t.Context(), "acme", h.ID, store.WebhookChange{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	w.feed()
	if n := len(w.calls(h)); n != 2 {
		t.Fatalf("%d calls, want 2: what it missed is only told on demand", n)
	}
	r, err := w.service.ReplaySince(t.Context(), "acme", h.ID, since, 0)
	if err != nil || r.Count != 2 || r.More {
		t.Fatalf("replay of what was missed: %+v, %v", r, err)
	}
	w.eventually("what it missed is told", func() bool { return len(w.receiver.at("/hook")) == 4 })
	if r, err = w.service.ReplaySince(t.Context(), "acme", h.ID, time.Now().Add(-time.Hour), 0); err != nil || r.Count != 3 {
		t.Fatalf("replay of all: %+v, %v", r, err)
	}
	w.eventually("all is told again", func() bool { return len(w.receiver.at("/hook")) == 7 })
	times, bodies := map[string]int{}, map[string]string{}
	for _, c := range w.receiver.at("/hook") {
		if times[c.id]++; times[c.id] > 1 && bodies[c.id] != string(c.raw) {
			t.Errorf("message %s has changed: %s, then %s", c.id, bodies[c.id], c.raw)
		}
		bodies[c.id] = string(c.raw)
	}
	if len(times) != 3 {
		t.Errorf("%d webhook-ids for 3 events", len(times))
	}
	if r, err = w.service.ReplaySince(t.Context(), "acme", h.ID, time.Time{}, r.Next); err != nil || r.Count != 0 {
		t.Errorf("replay after the end: %+v, %v", r, err)
	}
}

func TestNobodyReachesAnotherProjectsWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, _ := w.register("acme", "hook")
	w.try(h, "/hook")
	ctx, call := t.Context(), w.calls(h)[0].Notification.ID
	mine, _ := w.register("rival", "mine")
	off := false
	for what, do := range map[string]func() error{
		"get": func() error { _, err := w.service.Get(ctx, "rival", h.ID); return err },
		"change": func() error {
			_, err := w.service.Update(ctx, "rival", h.ID, store.WebhookChange{Enabled: &off})
			return err
		},
		"rotate":                   func() error { _, _, err := w.service.Rotate(ctx, "rival", h.ID, 0); return err },
		"log":                      func() error { _, err := w.service.Calls(ctx, "rival", h.ID, uuid.Nil, 10); return err },
		"test":                     func() error { _, err := w.service.Test(ctx, "rival", h.ID); return err },
		"replay":                   func() error { _, err := w.service.Replay(ctx, "rival", h.ID, call); return err },
		"since":                    func() error { _, err := w.service.ReplaySince(ctx, "rival", h.ID, time.Now(), 0); return err },
		"delete":                   func() error { return w.service.Delete(ctx, "rival", h.ID) },
		"a call that is another's": func() error { _, err := w.service.Replay(ctx, "rival", mine.ID, call); return err },
	} {
		if err := do(); !isNotFound(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestPrivateAddressesAreRefusedWhenAWebhookIsRegistered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for url, ok := range map[string]bool{
		w.receiver.URL + "/x": true, "https://example.com/x": true, "http://10.0.0.1/": false, "http://169.254.169.254/latest": false,
		"ftp://example.com": false, "https://example.com:22/": false, "": false,
	} {
		if problems := w.service.CheckURL("acme", url); (len(problems) == 0) != ok {
			t.Errorf("%q: %v", url, problems)
		}
	}
}
