package store_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// role makes a login role that the test's end drops. Roles belong to the server,
// so each has a name of its own.
func (d *db) role() string {
	d.t.Helper()
	name := "app-" + uuid.NewString()
	ident := pgx.Identifier{name}.Sanitize()
	d.exec("create role " + ident + " login password 'secret'")
	d.t.Cleanup(func() {
		ctx := context.WithoutCancel(d.t.Context())
		if _, err := d.Pool().Exec(ctx, "drop owned by "+ident); err != nil {
			d.t.Error(err)
		}
		if _, err := d.Pool().Exec(ctx, "drop role "+ident); err != nil {
			d.t.Error(err)
		}
	})
	return name
}

// as connects as a role.
func (d *db) as(role string) *pgx.Conn {
	d.t.Helper()
	cfg, err := pgx.ParseConfig(d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	cfg.User, cfg.Password = role, "secret"
	conn, err := pgx.ConnectConfig(d.t.Context(), cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(d.t.Context())) })
	return conn
}

func (d *db) bind(role, project string) {
	d.t.Helper()
	if err := d.BindRole(d.t.Context(), store.RoleBinding{Role: role, Project: project}); err != nil {
		d.t.Fatal(err)
	}
}

// denied reports whether the database refused for want of a privilege.
func denied(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42501"
}

func TestARoleActsForItsProjectsAndNothingElse(t *testing.T) {
	t.Parallel()
	d := open(t)
	shop := d.role()
	d.bind(shop, "shop")
	theirs := mustEnqueue(t, d.Pool(), hello) // the owner's, in project default
	conn := d.as(shop)
	mine := mustEnqueue(t, conn, strings.Replace(hello, "default", "shop", 1))

	var seen string
	err := conn.QueryRow(t.Context(), "select string_agg(id::text, ' ') from dispatcher.status").Scan(&seen)
	if err != nil || seen != mine.String() {
		t.Errorf("sees %q, want %v alone: %v", seen, mine, err)
	}
	var asked int
	if err := conn.QueryRow(t.Context(), "select dispatcher.cancel_for('order-1', 'shop')").Scan(&asked); err != nil || asked != 1 {
		t.Errorf("asked to cancel %d, want 1: %v", asked, err)
	}
	refused := map[string]string{
		"another project":           "select dispatcher.enqueue('" + hello + "')",
		"another project's cancel":  "select dispatcher.cancel_for('order-1', 'default')",
		"a table":                   "select from dispatcher.notifications",
		"writing a table":           "insert into dispatcher.enqueued values ('" + theirs.String() + "')",
		"a part of the function":    "select dispatcher.enqueue_at('" + hello + "', now())",
		"the keys":                  "select from dispatcher.idempotency_keys",
		"binding itself to another": "insert into dispatcher.role_projects values (session_user, 'default')",
		"posing as another role":    "set role " + pgx.Identifier{d.role()}.Sanitize(),
	}
	for what, sql := range refused {
		if _, err := conn.Exec(t.Context(), sql); !denied(err) {
			t.Errorf("%s: %v, want a refusal", what, err)
		}
	}
	if n := d.count(`select count(*) from pg_proc where pronamespace = 'dispatcher'::regnamespace and (proname like 'enqueue%' or proname = 'cancel_for')
		and has_function_privilege($1, oid, 'execute')`, d.role()); n != 0 {
		t.Errorf("a role that is bound to nothing may execute %d functions", n)
	}
	if n := d.count("select count(*) from dispatcher.cancel_requests where notification_id = $1", theirs); n != 0 {
		t.Error("asked to cancel another project's notification")
	}
	if err := d.UnbindRole(t.Context(), store.RoleBinding{Role: shop, Project: "shop"}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "select dispatcher.enqueue('"+hello+"')"); !denied(err) {
		t.Errorf("a role that was unbound: %v, want a refusal", err)
	}
}

func TestMembersActForTheirGroupsProjects(t *testing.T) {
	t.Parallel()
	d := open(t)
	group, member := d.role(), d.role()
	d.bind(group, "shop")
	d.exec("grant " + pgx.Identifier{group}.Sanitize() + " to " + pgx.Identifier{member}.Sanitize())
	mustEnqueue(t, d.as(member), strings.Replace(hello, "default", "shop", 1))
	if _, err := d.as(member).Exec(t.Context(), "select dispatcher.enqueue('"+hello+"')"); !denied(err) {
		t.Errorf("another project: %v, want a refusal", err)
	}
}

func TestRoleBindingsAreListedAndRefuseWhatIsNotThere(t *testing.T) {
	t.Parallel()
	d := open(t)
	a := d.role()
	d.bind(a, "two")
	d.bind(a, "one")
	d.bind(a, "one")
	got, err := d.RoleBindings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]store.RoleBinding{{Role: a, Project: "one"}, {Role: a, Project: "two"}}, got); diff != "" {
		t.Error(diff)
	}
	if err := d.BindRole(t.Context(), store.RoleBinding{Role: "nobody-" + uuid.NewString(), Project: "one"}); !errors.Is(err, store.ErrNoRole) {
		t.Errorf("a role that is not there: %v", err)
	}
	if err := d.BindRole(t.Context(), store.RoleBinding{Role: a, Project: "No Project"}); !errors.Is(err, store.ErrBadProject) {
		t.Errorf("a project that is none: %v", err)
	}
	if err := d.UnbindRole(t.Context(), store.RoleBinding{Role: a, Project: "three"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a binding that is not there: %v", err)
	}
}

// The view derives what package notify derives, in another language.
func TestTheStatusViewSaysWhatTheAPISays(t *testing.T) {
	t.Parallel()
	d := open(t)
	statuses := []notify.Status{
		notify.Waiting, notify.Queued, notify.Sending, notify.Uncertain, notify.Sent, notify.Failed, notify.Delivered, notify.Read,
		notify.Lapsed, notify.Canceled, notify.Blocked,
	}
	random := rand.New(rand.NewPCG(1, 2))
	const bodyOf = `{"project":"default","mode":"%","to":{"sms":"+14155550100","push":[{"provider":"fcm","token":"a"},{"provider":"fcm","token":"b"}]},
		"chain":[{"channel":"push"},{"channel":"sms"}],"content":{"body":"b"}}`
	seen := map[notify.Status]bool{}
	for range 400 {
		mode := []string{"first", "all"}[random.IntN(2)]
		id := mustEnqueue(t, d.Pool(), strings.Replace(bodyOf, "%", mode, 1))
		if mode == "first" && random.IntN(2) == 0 { // the second step has begun too
			d.exec(`insert into dispatcher.deliveries (notification_id, step, target, targets, priority, started_at, ends_at, expires_at, address,
				project, channel, status, started_because) select notification_id, 1, 0, 1, priority, started_at, ends_at, expires_at, address,
				project, 'sms', status, 'x' from dispatcher.deliveries where notification_id = $1 and target = 0`, id)
		}
		few := []notify.Status{statuses[random.IntN(len(statuses))], statuses[random.IntN(len(statuses))]} // so that all of some may be alike
		for _, delivery := range d.get(id).Deliveries {
			status := few[random.IntN(len(few))]
			moving := status == notify.Waiting || status == notify.Queued || status == notify.Sending || status == notify.Uncertain
			final := !moving && random.IntN(5) > 0
			d.exec(`update dispatcher.deliveries set status = $4, final = $5, finished_at = case when $5 then now() end,
				claimed_by = case when $4 = 'sending' then gen_random_uuid() end, claimed_at = case when $4 = 'sending' then now() end
				where notification_id = $1 and step = $2 and target = $3`, delivery.Notification, delivery.Step, delivery.Target, string(status), final)
		}
		if random.IntN(4) == 0 {
			d.exec("insert into dispatcher.marks (notification_id, canceled_at) values ($1, now())", id)
		}
		record := d.get(id)
		want, wantFinal := record.Overall()
		seen[want] = true
		var got notify.Status
		var gotFinal bool
		err := d.Pool().QueryRow(t.Context(), "select status, final from dispatcher.status where id = $1", id).Scan(&got, &gotFinal)
		if err != nil {
			t.Fatal(err)
		}
		if got != want || gotFinal != wantFinal {
			t.Errorf("status %s, final %t; want %s, %t for mode %s, canceled %t, deliveries %+v", got, gotFinal, want, wantFinal, mode,
				!record.CanceledAt.IsZero(), record.ByStep())
		}
	}
	for _, status := range notify.NotificationStatuses() {
		if !seen[status] {
			t.Errorf("no case is %s", status)
		}
	}
}
