package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// scopesOfTarget gives some targets scopes of their own.
func scopesOfTarget(t notify.Target) []string {
	switch {
	case t.Webhook != nil:
		return []string{"host"}
	case t.Device != nil:
		return []string{"devices", "device-" + t.Device.Provider}
	}
	return nil
}

// everything is a registry with an account for whatever a target demands.
func everything() *dispatch.Registry {
	var accounts []*dispatch.Account
	for c, providers := range map[notify.Channel][]string{
		notify.Push: {"fcm", "apns", "webpush"}, notify.Slack: {"slack", "slack-webhook"}, notify.SMS: {"x"},
		notify.WhatsApp: {"x"}, notify.Email: {"x"}, notify.Webhook: {"x"},
	} {
		for i, provider := range providers {
			s := newScript(c, ok)
			s.info.Provider = provider
			if i > 0 {
				s.info.Account = fmt.Sprintf("%s-%d", c, i)
			}
			accounts = append(accounts, account(scoped{s, scopesOfTarget}))
		}
	}
	return registry(accounts...)
}

// bodies reads the corpus of package notify.
func bodies(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	text, err := os.ReadFile("../notify/testdata/requests.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Name string
		Body json.RawMessage
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	out := map[string]json.RawMessage{}
	for _, r := range rows {
		out[r.Name] = r.Body
	}
	return out
}

// enqueue calls the SQL function in a transaction or on a pool.
func enqueue(t *testing.T, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, body string,
) uuid.UUID {
	t.Helper()
	var id uuid.UUID
	if err := q.QueryRow(t.Context(), "select dispatcher.enqueue($1::text::jsonb)", body).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// rowsOf reads everything that was written of a notification, as JSON whose
// members are in no order.
func rowsOf(t *testing.T, pool *pgxpool.Pool, id uuid.UUID) map[string]any {
	t.Helper()
	out := map[string]any{}
	for table, sql := range map[string]string{
		"notification": "select jsonb_agg(to_jsonb(n) - 'id') from dispatcher.notifications n where id = $1",
		// Work that is due is queued by the API at once and by the waker here; until
		// then it waits.
		"deliveries": `select jsonb_agg(to_jsonb(d) - 'notification_id' - 'job_id' - 'scopes'
			|| case when d.started_at <= n.created_at then '{"status": "due", "because": null}'::jsonb else '{}' end order by d.step, d.target)
			from dispatcher.deliveries d join dispatcher.notifications n on n.id = d.notification_id where d.notification_id = $1`,
		"waits": `select jsonb_agg(to_jsonb(w) - 'notification_id' order by w.step, w.target)
			from dispatcher.waits w join dispatcher.notifications n on n.id = w.notification_id
			where w.notification_id = $1 and n.send_at > n.created_at`,
	} {
		var v any
		if err := pool.QueryRow(t.Context(), sql, id).Scan(&v); err != nil {
			t.Fatal(err)
		}
		out[table] = v
	}
	return out
}

func scopesOf(t *testing.T, pool *pgxpool.Pool, id uuid.UUID) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `select coalesce(array_to_string(scopes, ' '), '-') from dispatcher.deliveries
		where notification_id = $1 order by step, target`, id)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEnqueueWritesTheRowsThatTheAPIWrites(t *testing.T) {
	noon := time.Date(2026, 12, 1, 12, 0, 0, 123456000, time.UTC)
	n := start(t, pgtest.URL(t), everything(), func(c *setup) {
		c.Work, c.Now = false, func() time.Time { return noon }
	})
	pool := n.store.Pool()
	compared := 0
	for name, body := range bodies(t) {
		parsed, problems := notify.Parse(body, notify.ParseOptions{ID: uuid.Must(uuid.NewV7()), Project: "default", Now: noon})
		if len(problems) > 0 {
			continue
		}
		compared++
		t.Run(name, func(t *testing.T) {
			if _, err := n.Accept(t.Context(), store.Accept{Notification: parsed}); err != nil {
				t.Fatal(err)
			}
			var id uuid.UUID
			err := pool.QueryRow(t.Context(), `select dispatcher.enqueue_at($1::text::jsonb || '{"project":"default"}', $2)`, string(body), noon).Scan(&id)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(rowsOf(t, pool, parsed.ID), rowsOf(t, pool, id)); diff != "" {
				t.Errorf("rows (-by the API +by SQL):\n%s", diff)
			}
			if id.Version() != 7 || id.Variant() != uuid.RFC4122 || time.Unix(id.Time().UnixTime()).Sub(noon).Abs() > time.Millisecond {
				t.Errorf("the id is no UUIDv7 of the instant: %v", id)
			}
			if err := n.Announce(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(scopesOf(t, pool, parsed.ID), scopesOf(t, pool, id)); diff != "" {
				t.Errorf("scopes (-by the API +by SQL):\n%s", diff)
			}
		})
	}
	if compared < 50 {
		t.Errorf("only %d bodies were compared", compared)
	}
}

// told reads the types of a notification's events in order.
func (n *node) told(t *testing.T, id uuid.UUID) []string {
	t.Helper()
	rows, err := n.store.Pool().Query(t.Context(), "select type from dispatcher.events where notification_id = $1 order by id", id)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const hello = `{"project":"default","to":{"sms":"+14155550100"},"content":{"body":"hi"},"reference":"order-1"}`

func TestEnqueuedIsSentAfterTheCommitAndNeverAfterARollback(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	n := single(t, account(sms))
	var ids [2]uuid.UUID
	for i := range ids {
		tx, err := n.store.Pool().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = enqueue(t, tx, hello)
		end := tx.Rollback
		if i == 1 {
			end = tx.Commit
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if status, _ := n.final(t, ids[1]); status != notify.Sent {
		t.Errorf("ended %s, want sent", status)
	}
	if sent := sms.sent(); len(sent) != 1 || sent[0].key != notify.DeliveryKey(ids[1], 0, 0, 0) {
		t.Errorf("sent %+v, want the committed one once", sent)
	}
	if story := n.told(t, ids[1]); len(story) == 0 || story[0] != store.EventAccepted || slices.Contains(story[1:], store.EventAccepted) {
		t.Errorf("events %v, want accepted once and first", story)
	}
}

func TestEnqueuedWithoutAnAccountFailsAtTheFirstWorker(t *testing.T) {
	t.Parallel()
	n := single(t, account(newScript(notify.Email, ok)))
	status, r := n.final(t, enqueue(t, n.store.Pool(), hello))
	if status != notify.Failed || r.Deliveries[0].Because != "no_account" {
		t.Errorf("ended %s because %q, want failed because no_account", status, r.Deliveries[0].Because)
	}
}

// A caller may hold its transaction for as long as it likes.
func TestAnOpenTransactionOfACallerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	url, sms := pgURL(t), newScript(notify.SMS, ok)
	n := start(t, url, registry(account(sms)))
	later := notification(notify.To{SMS: "+14155550100"}, step(notify.SMS))
	later.SendAt, later.Reference = later.SendAt.Add(50*time.Minute), "order-1"
	waiting := n.accept(t, later)

	// A connection of the caller's own, which may stay idle in a transaction.
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	enqueued := enqueue(t, tx, `{"idempotency_key":"k",`+hello[1:])
	var asked int
	if err := tx.QueryRow(t.Context(), "select dispatcher.cancel_for('order-1', 'default')").Scan(&asked); err != nil {
		t.Fatal(err)
	}
	if asked != 2 { // the one that waits, and the one of this very transaction
		t.Errorf("asked to cancel %d, want 2", asked)
	}
	var blocked int
	const others = 50
	for _, id := range n.acceptAll(t, alike(others, notify.To{SMS: "+14155550100"}, step(notify.SMS))...) {
		if status, _ := n.final(t, id); status != notify.Sent {
			t.Fatalf("ended %s while a caller's transaction was open", status)
		}
		if story := n.told(t, id); len(story) < 2 {
			t.Fatalf("the stream stands still: %v", story)
		}
		var now int
		err := n.store.Pool().QueryRow(t.Context(), `select count(*) from pg_stat_activity
			where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0
			  and $1 = any(pg_blocking_pids(pid))`, int32(tx.Conn().PgConn().PID())).Scan(&now)
		if err != nil {
			t.Fatal(err)
		}
		blocked += now
	}
	if blocked > 0 {
		t.Errorf("met %d sessions that waited for the caller's transaction", blocked)
	}
	other := later
	other.ID = uuid.Must(uuid.NewV7())
	if result, err := n.store.Cancel(t.Context(), "default", n.accept(t, other), time.Now()); err != nil || result != store.Canceled {
		t.Errorf("canceling another: %s, %v", result, err)
	}
	if r, err := n.store.Get(t.Context(), "default", waiting); err != nil || r.Deliveries[0].Final {
		t.Errorf("canceled before the commit: %+v, %v", r.Deliveries, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []uuid.UUID{waiting, enqueued} {
		if status, _ := n.final(t, id); status != notify.Canceled {
			t.Errorf("ended %s after the commit, want canceled", status)
		}
		if story := n.told(t, id); !slices.Equal(story, []string{store.EventAccepted, store.EventCanceled}) {
			t.Errorf("events %v, want accepted and canceled", story)
		}
	}
	if got := len(sms.sent()); got != others {
		t.Errorf("sent %d, want %d", got, others)
	}
}
