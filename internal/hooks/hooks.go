// Package hooks tells a project's own systems what happens to its notifications:
// status webhooks. Each event and each endpoint that wants it become one call,
// which is a notification of a hidden project and so is claimed, sent, held and
// tried again like any other, and is itself no event.
package hooks

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Account is the name of the account through which all calls go.
const Account = "status-webhooks"

// Timeout bounds one call; Standard Webhooks advises 15 to 30 s.
const Timeout = 15 * time.Second

// Schedule is how long to wait before each retry: eight tries in a little more
// than a day, the beginning of the one that Standard Webhooks gives.
func Schedule() []time.Duration {
	return []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 8 * time.Hour, 10 * time.Hour}
}

// lifetime is for how long a call may wait: for the whole schedule, and ten hours
// more in which a breaker or a gate may hold it.
const lifetime = 36 * time.Hour

// Times and sizes of the consumer.
const (
	feedInterval = 250 * time.Millisecond
	feedLimit    = 500 // events in one transaction
)

// Store is where endpoints, events and calls are.
type Store interface {
	FeedWebhooks(ctx context.Context, limit int, makeCalls func([]store.WebhookEvent) ([]store.Acceptance, error)) (more bool, err error)
	CreateWebhook(ctx context.Context, w store.Webhook, key secret.Value) (store.Webhook, error)
	Webhooks(ctx context.Context, project string) ([]store.Webhook, error)
	Webhook(ctx context.Context, project string, id uuid.UUID) (store.Webhook, error)
	UpdateWebhook(ctx context.Context, project string, id uuid.UUID, c store.WebhookChange) (store.Webhook, error)
	DeleteWebhook(ctx context.Context, project string, id uuid.UUID) error
	RotateWebhook(ctx context.Context, project string, id uuid.UUID, key secret.Value, overlap time.Duration) (store.Webhook, error)
	WebhookCalls(ctx context.Context, project string, webhook, before uuid.UUID, limit int) ([]store.Record, error)
	Get(ctx context.Context, project string, id uuid.UUID) (store.Record, error)
	Content(ctx context.Context, id uuid.UUID) (notify.Content, error)
	Accept(ctx context.Context, rows []store.Acceptance, now time.Time, keep time.Duration) ([]store.Accepted, []error, error)
	Events(ctx context.Context, f store.EventFilter) (store.EventPage, error)
	EventBounds(ctx context.Context, project string) (oldest, newest int64, err error)
	PositionAt(ctx context.Context, at time.Time) (int64, error)
	References(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error)
}

// Starter works out what a notification starts; a dispatcher is one.
type Starter interface {
	Acceptance(n notify.Notification) store.Acceptance
}

// Config is what a [Service] is made of.
type Config struct {
	Store   Store
	Starter Starter
	// Check says what would keep a call from being made.
	Check func(n *notify.Notification) []notify.Problem
	// Cursor is how a position of a project's events is shown to callers.
	Cursor func(project string, position int64) string
	Log    *slog.Logger     // nil discards
	Guard  *panics.Guard    // what panics are told to; nil for one that writes to Log
	Now    func() time.Time // nil means time.Now
}

// Service registers endpoints and feeds them. It is safe for concurrent use.
type Service struct{ cfg Config }

// New returns a service. Nothing is fed before [Service.Run].
func New(c Config) *Service {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Guard == nil {
		c.Guard = panics.New(c.Log, nil)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Service{c}
}

// Run turns events into calls until ctx ends. Any number of processes may run it:
// one at a time is the consumer.
func (s *Service) Run(ctx context.Context) {
	ticker := time.NewTicker(feedInterval)
	defer ticker.Stop()
	failing := false
	for {
		err := s.cfg.Guard.Round(ctx, "tell webhooks of events", s.Feed)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			s.cfg.Log.WarnContext(ctx, "webhooks are not told of events now", slog.Any("error", err))
		case err == nil && failing:
			s.cfg.Log.InfoContext(ctx, "webhooks are told of events again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Feed turns the events that there are into calls, unless another process is at
// it.
func (s *Service) Feed(ctx context.Context) error {
	for {
		more, err := s.cfg.Store.FeedWebhooks(ctx, feedLimit, s.calls)
		if err != nil || !more {
			return err
		}
	}
}

func (s *Service) calls(events []store.WebhookEvent) ([]store.Acceptance, error) {
	out := make([]store.Acceptance, len(events))
	for i := range events {
		c, err := s.call(&events[i])
		if err != nil {
			return nil, err
		}
		out[i] = c
	}
	return out, nil
}

// call is the call that tells a webhook of an event.
func (s *Service) call(e *store.WebhookEvent) (store.Acceptance, error) {
	m := newMessage(e, s.cfg.Cursor(e.Project, e.Seq))
	return s.start(e.Project, e.Webhook, e.URL, m, labelOf(e, s.cfg.Cursor(e.Project, e.Seq)))
}

// start makes the call of a message.
func (s *Service) start(project string, webhook uuid.UUID, url string, m any, l label) (store.Acceptance, error) {
	n, err := s.notification(project, webhook, url)
	if err != nil {
		return store.Acceptance{}, err
	}
	payload, err := notify.Encode(m)
	if err != nil {
		return store.Acceptance{}, err
	}
	if n.Metadata, err = notify.Encode(l); err != nil {
		return store.Acceptance{}, err
	}
	n.Content.Webhook = &notify.WebhookContent{Payload: payload}
	return s.cfg.Starter.Acceptance(n), nil
}

// notification is a call to a webhook without its content.
func (s *Service) notification(project string, webhook uuid.UUID, url string) (notify.Notification, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return notify.Notification{}, err
	}
	now := s.cfg.Now().UTC().Truncate(time.Microsecond) // which is what Postgres keeps
	return notify.Notification{
		ID: id, Project: store.HiddenProject(project), Mode: notify.First, Reference: webhook.String(),
		Priority:  notify.Low, // people are told first
		To:        notify.To{Webhook: &notify.WebhookTarget{URL: url}},
		Chain:     []notify.Step{{Channel: notify.Webhook, Account: Account, Success: notify.UntilAccepted, Attempts: 1 + len(Schedule())}},
		CreatedAt: now, SendAt: now, ExpiresAt: now.Add(lifetime),
	}, nil
}
