package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestTheSchemaRefusesWhatMustNotBe(t *testing.T) {
	t.Parallel()
	d := open(t)
	a := row(waiting(notify.WaitBackoff, "", now().Add(time.Hour)))
	d.accept(a)
	claimed := d.claim(d.accept(row())[0])
	r := outcome(claimed, notify.Unknown, store.After{Status: notify.Uncertain})
	r.Wait = waitOf(claimed.Delivery, notify.WaitReconcile, now())
	d.record(r)
	const deliveries = "update dispatcher.deliveries set "
	for _, sql := range []string{
		deliveries + "status = 'sending'",
		deliveries + "claimed_by = gen_random_uuid(), claimed_at = now()",
		deliveries + "claimed_by = gen_random_uuid(), status = 'sending'",
		deliveries + "claimed_at = now()",
		deliveries + "final = true, status = 'sent'",
		deliveries + "finished_at = now()",
		deliveries + "final = true, finished_at = now(), status = 'waiting'",
		deliveries + "final = true, finished_at = now(), status = 'queued'",
		deliveries + "status = 'pending'",
		deliveries + "stop = 'x'",
		deliveries + "turn = -1",
		deliveries + "targets = target",
		deliveries + "ends_at = expires_at + interval '1 second'",
		deliveries + "channel = 'fax'",
		deliveries + "address = '\\x00'",
		deliveries + "notification_id = gen_random_uuid()",
		"update dispatcher.notifications set priority = 5",
		"update dispatcher.notifications set mode = 'some'",
		"update dispatcher.notifications set chain = '{}'",
		"update dispatcher.notifications set project = 'a b'",
		"update dispatcher.notifications set project = '~~a'",
		"update dispatcher.notifications set project = '~' || repeat('a', 64)",
		"update dispatcher.notifications set reference = ''",
		"update dispatcher.notifications set expires_at = send_at",
		"update dispatcher.notifications set send_at = created_at - interval '1 second'",
		"update dispatcher.waits set reason = 'because'",
		"update dispatcher.waits set target = 7",
		"update dispatcher.attempts set n = 0",
		"update dispatcher.attempts set outcome = 'perhaps'",
		"update dispatcher.attempts set detail = repeat('x', 257)",
		"update dispatcher.attempts set duration_us = -1",
		"insert into dispatcher.marks (notification_id) select id from dispatcher.notifications limit 1",
		"insert into dispatcher.suppressions values ('a', 'sms', '\\x00', '', '', now())",
		"insert into dispatcher.api_keys values (gen_random_uuid(), 'a', '', '\\x00', '', array['read'], now())",
	} {
		_, err := d.Pool().Exec(t.Context(), sql)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "23514" && pg.Code != "23503" {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

func TestTheSchemaKnowsEveryWord(t *testing.T) {
	t.Parallel()
	d := open(t)
	delivery := d.accept(row())[0]
	set := func(sql string, args ...any) {
		t.Helper()
		if d.exec(sql, args...) != 1 {
			t.Errorf("%s touched nothing", sql)
		}
	}
	for _, s := range notify.NotificationStatuses() {
		switch s {
		case notify.Queued, notify.Sending, notify.PartiallyFailed: // not the end of a delivery
		default:
			set("update dispatcher.deliveries set final = true, finished_at = now(), status = $1", string(s))
		}
	}
	set("update dispatcher.deliveries set final = false, finished_at = null, status = 'waiting'")
	for _, c := range notify.Channels() {
		set("update dispatcher.deliveries set channel = $1", string(c))
	}
	set(`insert into dispatcher.waits (notification_id, step, target, turn, priority, held, due, until, since, project, channel, reason)
		select notification_id, step, target, turn, priority, false, now(), now(), now(), project, channel, 'backoff' from dispatcher.deliveries`)
	for _, reason := range []notify.WaitReason{
		notify.WaitScheduled, notify.WaitBackoff, notify.WaitThrottled, notify.WaitBreakerOpen, notify.WaitPaused, notify.WaitCapacity,
		notify.WaitBudget, notify.WaitAccountRejected, notify.WaitReceipt, notify.WaitReconcile, notify.WaitQuietHours,
	} {
		set("update dispatcher.waits set reason = $1", string(reason))
	}
	set(`insert into dispatcher.attempts (notification_id, step, target, turn, n, duration_us, started_at, id, node, account, outcome)
		values ($1, 0, 0, 0, 1, 0, now(), gen_random_uuid(), gen_random_uuid(), 'a', 'accepted')`, delivery.Notification)
	for _, o := range []notify.Outcome{
		notify.Accepted, notify.Unknown, notify.Throttled, notify.ProviderUnavailable, notify.RecipientUnavailable, notify.RecipientRejected,
		notify.MessageRejected, notify.AccountRejected, notify.Suppressed, notify.NotAttempted, notify.Expired,
	} {
		set("update dispatcher.attempts set outcome = $1", string(o))
	}
}
