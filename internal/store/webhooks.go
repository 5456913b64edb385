package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// MaxWebhooks is how many status webhooks a project may have.
const MaxWebhooks = 50

// ErrTooManyWebhooks means that the project has [MaxWebhooks] already.
var ErrTooManyWebhooks = errors.New("the project has as many webhooks as it may have")

// HiddenProject is the project that the calls of a project's status webhooks
// belong to. No key can be made for it, and nothing of it is an event.
func HiddenProject(project string) string { return hiddenMark + project }

// Hidden reports whether a project is one of [HiddenProject].
func Hidden(project string) bool { return len(project) > 0 && project[:1] == hiddenMark }

const hiddenMark = "~"

// Webhook is an endpoint that is told what happens in its project, without its
// secrets.
type Webhook struct {
	ID           uuid.UUID
	Project      string
	URL          string
	Description  string
	Events       []string // the types it is told of; empty for all
	CreatedAt    time.Time
	FailingSince time.Time // zero while its last answer was good
	OldUntil     time.Time // until when its former secret signs too; zero or past for no longer
	DisabledAt   time.Time // zero while it is called
	// DisabledBecause is one of the reasons below.
	DisabledBecause string
}

// Why a webhook is disabled.
const (
	WebhookGone    = "gone"    // it answered 410
	WebhookFailing = "failing" // it failed for long
	WebhookPaused  = "paused"  // its owner wanted so
)

const webhookColumns = `id, project, url, description, events, created_at, failing_since, old_until, disabled_at, disabled_because`

func scanWebhook(row pgx.CollectableRow) (Webhook, error) {
	var w Webhook
	var failing, old, disabled *time.Time
	var because *string
	err := row.Scan(&w.ID, &w.Project, &w.URL, &w.Description, &w.Events, &w.CreatedAt, &failing, &old, &disabled, &because)
	w.FailingSince, w.OldUntil, w.DisabledAt, w.DisabledBecause = zero(failing), zero(old), zero(disabled), zero(because)
	return w, err
}

// CreateWebhook adds a webhook, which is told of events from now on. Of w it
// takes ID, Project, URL, Description and Events. It returns
// [ErrTooManyWebhooks].
func (s *Store) CreateWebhook(ctx context.Context, w Webhook, key secret.Value) (Webhook, error) {
	made, err := s.oneWebhook(ctx, `
		insert into dispatcher.webhooks (id, project, url, description, events, secret, after_event, created_at)
		select $1, $2, $3, $4, $5, $6, coalesce((select max(id) from dispatcher.events), 0), clock_timestamp()
		where (select count(*) from dispatcher.webhooks where project = $2) < $7
		returning `+webhookColumns, w.ID, w.Project, w.URL, w.Description, orEmpty(w.Events), key.Reveal(), MaxWebhooks)
	if errors.Is(err, ErrNotFound) {
		err = ErrTooManyWebhooks
	}
	return made, wrap("create webhook", err)
}

// Webhooks returns a project's webhooks, newest first.
func (s *Store) Webhooks(ctx context.Context, project string) ([]Webhook, error) {
	rows, err := s.pool.Query(ctx, `select `+webhookColumns+` from dispatcher.webhooks where project = $1 order by id desc`, project)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	out, err := pgx.CollectRows(rows, scanWebhook)
	return out, wrap("list webhooks", err)
}

// Webhook returns one webhook of a project, or [ErrNotFound].
func (s *Store) Webhook(ctx context.Context, project string, id uuid.UUID) (Webhook, error) {
	w, err := s.oneWebhook(ctx, `select `+webhookColumns+` from dispatcher.webhooks where id = $1 and project = $2`, id, project)
	return w, wrap("get webhook", err)
}

// WebhookChange is what to change of a webhook; nil leaves as it is.
type WebhookChange struct {
	URL         *string
	Description *string
	Events      []string // nil leaves; empty means all
	Enabled     *bool
}

// UpdateWebhook changes a webhook of a project, or returns [ErrNotFound]. One
// that is enabled again is told of events from now on, and counts as not failing.
func (s *Store) UpdateWebhook(ctx context.Context, project string, id uuid.UUID, c WebhookChange) (Webhook, error) {
	w, err := s.oneWebhook(ctx, `
		update dispatcher.webhooks w set
		  url = coalesce($3, url), description = coalesce($4, description), events = coalesce($5, events),
		  after_event = case when $6 and disabled_at is not null then coalesce((select max(id) from dispatcher.events), 0) else after_event end,
		  failing_since = case when $6 then null else failing_since end, failed_at = case when $6 then null else failed_at end,
		  failures = case when $6 then 0 else failures end,
		  disabled_because = case when $6 then null when not $6 then coalesce(disabled_because, '`+WebhookPaused+`') else disabled_because end,
		  disabled_at = case when $6 then null when not $6 then coalesce(disabled_at, clock_timestamp()) else disabled_at end
		where id = $1 and project = $2
		returning `+webhookColumns, id, project, c.URL, c.Description, c.Events, c.Enabled)
	return w, wrap("update webhook", err)
}

// DeleteWebhook removes a webhook of a project, or returns [ErrNotFound]. Calls
// that wait find it gone.
func (s *Store) DeleteWebhook(ctx context.Context, project string, id uuid.UUID) error {
	_, err := s.oneWebhook(ctx, `delete from dispatcher.webhooks where id = $1 and project = $2 returning `+webhookColumns, id, project)
	return wrap("delete webhook", err)
}

// RotateWebhook gives a webhook of a project a new secret; the one that it
// replaces signs beside it for overlap. One that was replaced before ends now. It
// returns [ErrNotFound].
func (s *Store) RotateWebhook(ctx context.Context, project string, id uuid.UUID, key secret.Value, overlap time.Duration) (Webhook, error) {
	w, err := s.oneWebhook(ctx, `
		update dispatcher.webhooks set secret_old = secret, old_until = clock_timestamp() + $4::interval, secret = $3
		where id = $1 and project = $2 returning `+webhookColumns, id, project, key.Reveal(), overlap)
	return w, wrap("rotate webhook", err)
}

func (s *Store) oneWebhook(ctx context.Context, sql string, args ...any) (Webhook, error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return Webhook{}, err
	}
	w, err := pgx.CollectExactlyOneRow(rows, scanWebhook)
	return w, notFound(err)
}

// WebhookSigning is what a call to a webhook needs to know of it.
type WebhookSigning struct {
	Secrets  []secret.Value // one, or two during a rotation, the new one first
	Disabled bool
	Failing  bool // its last answer was not good
}

// WebhookSigning reads a webhook of any project, or returns [ErrNotFound].
func (s *Store) WebhookSigning(ctx context.Context, id uuid.UUID) (WebhookSigning, error) {
	var w WebhookSigning
	var now string
	var old *string
	err := s.pool.QueryRow(ctx, `
		select secret, case when old_until > clock_timestamp() then secret_old end, disabled_at is not null, failing_since is not null
		from dispatcher.webhooks where id = $1`, id).Scan(&now, &old, &w.Disabled, &w.Failing)
	if err != nil {
		return w, wrap("read webhook", notFound(err))
	}
	if w.Secrets = []secret.Value{secret.New(now)}; old != nil {
		w.Secrets = append(w.Secrets, secret.New(*old))
	}
	return w, nil
}

// WebhookWorked notes that a webhook that was failing has given a good answer.
func (s *Store) WebhookWorked(ctx context.Context, id uuid.UUID) error {
	_, err := s.pool.Exec(ctx, `update dispatcher.webhooks set failing_since = null, failed_at = null, failures = 0
		where id = $1 and failing_since is not null`, id)
	return wrap("note a webhook's success", err)
}

// When a webhook has failed for so long that it is disabled: for this time, and
// in so many calls, no two of which counted within webhookFailureGap, so that a
// burst counts once.
const (
	WebhookFailingFor  = 3 * 24 * time.Hour
	WebhookMaxFailures = 10

	webhookFailureGap = 30 * time.Second
)

// EventWebhookDisabled says that a webhook is called no more. Its notification is
// the webhook, and its because is [WebhookGone] or [WebhookFailing].
const EventWebhookDisabled = "webhook_disabled"

const failWebhook = `
update dispatcher.webhooks set
  failing_since = coalesce(failing_since, clock_timestamp()), failed_at = clock_timestamp(), failures = failures + 1,
  disabled_at = case when $2 or failing_since < clock_timestamp() - $3::interval and failures + 1 >= $4 then clock_timestamp() end,
  disabled_because = case when $2 then '` + WebhookGone + `'
    when failing_since < clock_timestamp() - $3::interval and failures + 1 >= $4 then '` + WebhookFailing + `' end
where id = $1 and disabled_at is null and ($2 or failed_at is null or failed_at < clock_timestamp() - $5::interval)
returning project, disabled_because`

// WebhookFailed notes that a call to a webhook failed; gone says that it asked not
// to be called again. If that, or how long it has been failing, disables it, an
// [EventWebhookDisabled] is written with it and because says why.
func (s *Store) WebhookFailed(ctx context.Context, id uuid.UUID, gone bool, now time.Time) (because string, err error) {
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var project string
		var why *string
		err := tx.QueryRow(ctx, failWebhook, id, gone, WebhookFailingFor, WebhookMaxFailures, webhookFailureGap).Scan(&project, &why)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && why == nil {
			return nil
		}
		if err != nil {
			return err
		}
		because = *why
		b := &pgx.Batch{}
		queueEvents(b, []Event{{
			At: now, ID: DeliveryID{Notification: id}, Whole: true, Project: project, Type: EventWebhookDisabled, Because: because,
		}})
		return send(ctx, tx, b)
	})
	return because, wrap("note a webhook's failure", err)
}

// orEmpty is for columns that hold no NULL.
func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// wrap says what failed, if anything did.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
