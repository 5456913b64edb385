package hooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels/webhook"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// MaxOverlap is the longest time for which a former secret signs too.
const MaxOverlap = 7 * 24 * time.Hour

// MaxReplay is how many events one replay sends at most; it looks through so many
// pages of them, so that one among many other projects' comes to an end too.
const (
	MaxReplay      = 1000
	maxReplayPages = 50
)

// Create registers an endpoint under a new id and secret.
func (s *Service) Create(ctx context.Context, w store.Webhook) (store.Webhook, secret.Value, error) {
	var err error
	if w.ID, err = uuid.NewV7(); err != nil {
		return w, secret.Value{}, err
	}
	key := webhook.NewSecret()
	w, err = s.cfg.Store.CreateWebhook(ctx, w, key)
	return w, key, err
}

// List returns a project's webhooks, newest first.
func (s *Service) List(ctx context.Context, project string) ([]store.Webhook, error) {
	return s.cfg.Store.Webhooks(ctx, project)
}

// Get returns a webhook of a project, or [store.ErrNotFound].
func (s *Service) Get(ctx context.Context, project string, id uuid.UUID) (store.Webhook, error) {
	return s.cfg.Store.Webhook(ctx, project, id)
}

// Update changes a webhook; see [store.Store.UpdateWebhook]. Calls that wait go
// to the URL that they were made for.
func (s *Service) Update(ctx context.Context, project string, id uuid.UUID, c store.WebhookChange) (store.Webhook, error) {
	return s.cfg.Store.UpdateWebhook(ctx, project, id, c)
}

// Delete removes a webhook. Calls that wait are not made.
func (s *Service) Delete(ctx context.Context, project string, id uuid.UUID) error {
	return s.cfg.Store.DeleteWebhook(ctx, project, id)
}

// Rotate gives a webhook a new secret. The old one signs too for overlap, 0 to
// [MaxOverlap].
func (s *Service) Rotate(ctx context.Context, project string, id uuid.UUID, overlap time.Duration) (store.Webhook, secret.Value, error) {
	key := webhook.NewSecret()
	w, err := s.cfg.Store.RotateWebhook(ctx, project, id, key, overlap)
	return w, key, err
}

// CheckURL says what is wrong with an endpoint's URL, with pointers into a
// notification.
func (s *Service) CheckURL(project, url string) []notify.Problem {
	n, err := s.notification(project, uuid.Nil, url)
	if err != nil {
		return []notify.Problem{{Detail: "cannot be checked now"}}
	}
	n.Content.Body = "-"
	return s.cfg.Check(&n)
}

// Calls returns the log of a webhook: at most limit calls, newest first, older
// than before, if that is not the zero id.
func (s *Service) Calls(ctx context.Context, project string, id, before uuid.UUID, limit int) ([]Call, error) {
	if _, err := s.Get(ctx, project, id); err != nil {
		return nil, err
	}
	records, err := s.cfg.Store.WebhookCalls(ctx, project, id, before, limit)
	if err != nil {
		return nil, err
	}
	out := make([]Call, len(records))
	for i := range records {
		out[i] = callOf(records[i])
	}
	return out, nil
}

// Test sends a message of the type [TypeTest].
func (s *Service) Test(ctx context.Context, project string, id uuid.UUID) (Call, error) {
	w, err := s.Get(ctx, project, id)
	if err != nil {
		return Call{}, err
	}
	now := s.cfg.Now().UTC()
	m := message{Type: TypeTest, Timestamp: now, Data: data{Type: TypeTest, WebhookID: id}}
	return s.sendOne(ctx, &w, m, label{MessageID: uuid.New(), Event: TypeTest})
}

func (s *Service) sendOne(ctx context.Context, w *store.Webhook, m any, l label) (Call, error) {
	a, err := s.start(w.Project, w.ID, w.URL, m, l)
	if err != nil {
		return Call{}, err
	}
	if err := s.accept(ctx, []store.Acceptance{a}); err != nil {
		return Call{}, err
	}
	return s.one(ctx, w.Project, w.ID, a.Notification.ID)
}

// one reads a call of a webhook.
func (s *Service) one(ctx context.Context, project string, id, call uuid.UUID) (Call, error) {
	r, err := s.cfg.Store.Get(ctx, store.HiddenProject(project), call)
	if err != nil {
		return Call{}, err
	}
	if r.Notification.Reference != id.String() {
		return Call{}, store.ErrNotFound
	}
	return callOf(r), nil
}

func (s *Service) accept(ctx context.Context, calls []store.Acceptance) error {
	_, errs, err := s.cfg.Store.Accept(ctx, calls, s.cfg.Now(), 0)
	return errors.Join(append(errs, err)...)
}

// Replay makes a call of a webhook once more, to the URL that the webhook has now
// and under the same webhook-id, whatever became of the first.
func (s *Service) Replay(ctx context.Context, project string, id, call uuid.UUID) (Call, error) {
	w, err := s.Get(ctx, project, id)
	if err != nil {
		return Call{}, err
	}
	was, err := s.one(ctx, project, id, call)
	if err != nil {
		return Call{}, err
	}
	l, err := labelIn(&was.Notification)
	if err != nil {
		return Call{}, fmt.Errorf("replay a call of a webhook: read its label: %w", err)
	}
	content, err := s.cfg.Store.Content(ctx, call) // which no record brings along
	if err != nil {
		return Call{}, fmt.Errorf("replay a call of a webhook: %w", err)
	}
	if content.Webhook == nil {
		return Call{}, errors.New("replay a call of a webhook: its content is no call's")
	}
	return s.sendOne(ctx, &w, content.Webhook.Payload, l)
}

// Replayed is what a replay did.
type Replayed struct {
	Count int
	// More says that there are more events; they come after the position Next.
	More bool
	Next int64
}

// ReplaySince makes a call for each event since the given instant or, where that
// is zero, after the position: for those that the webhook wants now, told or not,
// at most [MaxReplay]. Events that are no longer kept are passed over.
func (s *Service) ReplaySince(ctx context.Context, project string, id uuid.UUID, since time.Time, after int64) (Replayed, error) {
	w, err := s.Get(ctx, project, id)
	if err != nil {
		return Replayed{}, err
	}
	if !since.IsZero() {
		if after, err = s.cfg.Store.PositionAt(ctx, since); err != nil {
			return Replayed{}, err
		}
	}
	oldest, _, err := s.cfg.Store.EventBounds(ctx, project)
	if err != nil {
		return Replayed{}, err
	}
	f := store.EventFilter{Project: project, Types: w.Events, After: max(after, oldest), Limit: MaxReplay}
	if len(w.Events) == 0 {
		f.Types = nil
	}
	out := Replayed{Next: f.After, More: true}
	for page := 0; page < maxReplayPages && out.More && out.Count < MaxReplay; page++ {
		f.After, f.Limit = out.Next, MaxReplay-out.Count
		found, err := s.cfg.Store.Events(ctx, f)
		if err != nil {
			return out, err
		}
		n, err := s.replay(ctx, &w, found.Events, since)
		if err != nil {
			return out, err
		}
		out.Count, out.Next, out.More = out.Count+n, found.Next, found.More
	}
	return out, nil
}

// replay makes calls for those of the events that are not older than since.
func (s *Service) replay(ctx context.Context, w *store.Webhook, events []store.LoggedEvent, since time.Time) (int, error) {
	ids := make([]uuid.UUID, len(events))
	for i := range events {
		ids[i] = events[i].ID.Notification
	}
	references, err := s.cfg.Store.References(ctx, ids)
	if err != nil {
		return 0, err
	}
	var calls []store.Acceptance
	for _, e := range events {
		if e.At.Before(since) {
			continue
		}
		c, err := s.call(&store.WebhookEvent{LoggedEvent: e, Reference: references[e.ID.Notification], Webhook: w.ID, URL: w.URL})
		if err != nil {
			return 0, err
		}
		calls = append(calls, c)
	}
	if len(calls) == 0 {
		return 0, nil
	}
	return len(calls), s.accept(ctx, calls)
}
