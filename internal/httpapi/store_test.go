package httpapi_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

// neverCalled is a provider for a node that only accepts.
type neverCalled struct{ info channels.Info }

func (n neverCalled) Info() channels.Info { return n.info }

func (n neverCalled) Send(context.Context, *channels.Message) channels.Result {
	return channels.Result{Outcome: notify.NotAttempted}
}

// overPostgres is an API over Postgres, of a node that accepts and does not work.
func overPostgres(t *testing.T, change ...func(*httpapi.Config)) (*service, *store.Store) {
	t.Helper()
	db, err := store.Open(t.Context(), pgtest.URL(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	byChannel := map[notify.Channel]dispatch.Channel{}
	for _, info := range newFake().Infos("") {
		c := byChannel[info.Channel]
		c.MaxInFlight = 1
		c.Accounts = append(c.Accounts, &dispatch.Account{Provider: neverCalled{info}, Timeout: time.Second})
		byChannel[info.Channel] = c
	}
	node, err := dispatch.New(db, dispatch.Config{
		Registry: dispatch.NewRegistry(byChannel), Admission: dispatch.NewCluster(resilience.NewMember(db.Scopes(uuid.New()), rand.Float64), nil),
		Metrics: (*telemetry.Metrics)(nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	s := newService(t, func(c *httpapi.Config) {
		c.Accept, c.Store, c.Keys, c.Now = node, db, db, time.Now
		c.Retry, c.Batches = node, db
		c.Ready = []httpapi.Check{{Name: "database", Do: db.Ready}}
		for _, f := range change {
			f(c)
		}
	})
	return s, db
}

// keyFor makes a key and returns its header.
func keyFor(t *testing.T, db *store.Store, project string) header {
	t.Helper()
	secret, _, err := db.CreateKey(t.Context(), project, "test", []string{"send", "read", "admin"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return header{"Authorization", "Bearer " + secret}
}

func TestOverPostgres(t *testing.T) {
	s, db := overPostgres(t)
	acme, other := keyFor(t, db, "acme"), keyFor(t, db, "other")
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)

	type shown struct {
		ID        string         `json:"id"`
		Status    string         `json:"status"`
		Reference string         `json:"reference"`
		Metadata  map[string]any `json:"metadata"`
		Waiting   map[string]any `json:"waiting"`
		Steps     []struct {
			Channel string `json:"channel"`
			Status  string `json:"status"`
		} `json:"steps"`
	}
	post := func(t *testing.T, body string, headers ...header) shown {
		t.Helper()
		var v shown
		s.do(t, "POST", "/v1/notifications", body, append(headers, acme)...).want(202).into(&v)
		return v
	}
	get := func(t *testing.T, id string) shown {
		t.Helper()
		var v shown
		s.do(t, "GET", "/v1/notifications/"+id, "", acme).want(200).into(&v)
		return v
	}
	list := func(t *testing.T, query string, as header) []string {
		t.Helper()
		var v struct {
			Items []shown `json:"items"`
		}
		s.do(t, "GET", "/v1/notifications?"+query, "", as).want(200).into(&v)
		ids := []string{}
		for _, item := range v.Items {
			ids = append(ids, item.ID)
		}
		return ids
	}

	now := post(t, `{"to":{"push":[{"provider":"fcm","token":"a"},{"provider":"fcm","token":"b"}],"sms":"+14155550100"},
		"content":{"title":"t\u00fc","data":{"n":12345678901234567890}},"reference":"r-1","metadata":{"team":"core"},"priority":"high"}`)
	scheduled := post(t, `{"to":{"email":"ana@example.com"},"content":{"title":"t","body":"b"},"send_at":"`+later+`"}`)

	t.Run("a notification can be seen", func(t *testing.T) {
		v := get(t, now.ID)
		if v.Status != "queued" || v.Reference != "r-1" || v.Metadata["team"] != "core" || len(v.Steps) != 2 ||
			v.Steps[0].Status != "queued" || v.Steps[1].Status != "pending" || v.Waiting != nil {
			t.Errorf("notification %+v", v)
		}
		v = get(t, scheduled.ID)
		if v.Status != "queued" || v.Waiting["reason"] != "scheduled" || v.Waiting["until"] != later || v.Steps[0].Status != "waiting" {
			t.Errorf("notification %+v", v)
		}
	})
	t.Run("and found by what is known of it", func(t *testing.T) {
		for query, want := range map[string]string{
			"":                                     scheduled.ID + " " + now.ID,
			"reference=r-1":                        now.ID,
			"channel=push":                         now.ID,
			"channel=sms":                          "", // the step has not started
			"status=queued":                        scheduled.ID + " " + now.ID,
			"status=sent":                          "",
			"recipient=ana@example.com":            scheduled.ID,
			"recipient=b&channel=push":             now.ID,
			"recipient=nobody@example.com":         "",
			"created_before=2020-01-01T00:00:00Z":  "",
			"created_after=2020-01-01T00:00:00Z":   scheduled.ID + " " + now.ID,
			"channel=sms&recipient=%2B14155550100": "",
		} {
			if got := strings.Join(list(t, query, acme), " "); got != want {
				t.Errorf("%q finds %q, want %q", query, got, want)
			}
		}
	})
	t.Run("but not by another project", func(t *testing.T) {
		s.do(t, "GET", "/v1/notifications/"+now.ID, "", other).problem(404, "not_found")
		s.do(t, "POST", "/v1/notifications/"+now.ID+"/cancel", "", other).problem(404, "not_found")
		if ids := list(t, "recipient=ana@example.com", other); len(ids) != 0 {
			t.Errorf("another project sees %v", ids)
		}
		if ids := list(t, "", other); len(ids) != 0 {
			t.Errorf("another project sees %v", ids)
		}
	})
	t.Run("the backlog is the project's own", func(t *testing.T) {
		_, err := db.Pool().Exec(t.Context(), "insert into dispatcher.pauses (channel, by, reason, since) values ('email', 'ana', 'test', now())")
		if err != nil {
			t.Fatal(err)
		}
		waiting := func(as header) (n int64, paused bool) {
			var v struct {
				Items []struct {
					Channel string `json:"channel"`
					Paused  any    `json:"paused"`
					Backlog struct {
						Waiting map[string]int64 `json:"waiting"`
						Queued  int64            `json:"queued"`
					} `json:"backlog"`
				} `json:"items"`
			}
			s.do(t, "GET", "/v1/channels", "", as).want(200).into(&v)
			for _, item := range v.Items {
				n += item.Backlog.Queued
				for _, count := range item.Backlog.Waiting {
					n += count
				}
				paused = paused || item.Paused != nil
			}
			return n, paused
		}
		if n, paused := waiting(acme); n != 3 || !paused {
			t.Errorf("an admin sees %d deliveries, paused: %v; want 3 and true", n, paused)
		}
		secret, _, err := db.CreateKey(t.Context(), "other", "reader", []string{"read"}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := waiting(header{"Authorization", "Bearer " + secret}); n != 0 {
			t.Errorf("another project sees %d deliveries, want 0", n)
		}
	})
	t.Run("a cancel is final", func(t *testing.T) {
		for _, want := range []string{"canceled", "already_final"} {
			if got := s.do(t, "POST", "/v1/notifications/"+scheduled.ID+"/cancel", "", acme).want(200).Body.String(); got != `{"result":"`+want+`"}` {
				t.Errorf("answer %s, want %s", got, want)
			}
		}
		if v := get(t, scheduled.ID); v.Status != "canceled" || v.Waiting != nil {
			t.Errorf("notification %+v", v)
		}
	})
	t.Run("rivals with one key get one answer", func(t *testing.T) {
		key := header{"Idempotency-Key", `"race"`}
		ids, replays := make([]string, 16), make([]string, 16)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				a := s.do(t, "POST", "/v1/notifications", good, key, acme)
				ids[i], replays[i] = a.Header().Get("Location"), a.Header().Get("Idempotent-Replayed")
			})
		}
		wg.Wait()
		first := 0
		for i := range ids {
			if ids[i] == "" || ids[i] != ids[0] {
				t.Errorf("Location %q and %q", ids[i], ids[0])
			}
			if replays[i] == "" {
				first++
			}
		}
		if first != 1 {
			t.Errorf("%d answers are the first, want 1", first)
		}
		s.do(t, "POST", "/v1/notifications", strings.Replace(good, "hi", "ho", 1), key, acme).problem(422, "idempotency_key_mismatch")
		s.do(t, "POST", "/v1/notifications", strings.Replace(good, "hi", "ho", 1), key, other).want(202)
	})
	t.Run("a key that is revoked opens nothing", func(t *testing.T) {
		var key struct {
			ID     uuid.UUID `json:"id"`
			Secret string    `json:"secret"`
		}
		s.do(t, "POST", "/v1/keys", `{"name":"billing","scopes":["read"]}`, acme).want(201).into(&key)
		s.do(t, "DELETE", "/v1/keys/"+key.ID.String(), "", other).problem(404, "not_found")
		s.do(t, "DELETE", "/v1/keys/"+key.ID.String(), "", acme).want(204)
		s.do(t, "GET", "/v1/notifications", "", header{"Authorization", "Bearer " + key.Secret}).problem(401, "unauthorized")
		if list := s.do(t, "GET", "/v1/keys", "", acme).want(200).Body.String(); strings.Contains(list, key.Secret) || !strings.Contains(list, key.ID.String()) {
			t.Errorf("list %s", list)
		}
	})
	t.Run("the corpus is stored", func(t *testing.T) {
		for _, row := range corpus(t) {
			a := s.do(t, "POST", "/v1/notifications", renamed(row.Body), acme)
			if want := map[bool]int{true: 202, false: 422}[len(row.Problems) == 0]; a.Code != want {
				t.Errorf("%s: status %d, want %d: %s", row.Name, a.Code, want, a.Body)
				continue
			}
			if a.Code == 202 {
				s.do(t, "GET", a.Header().Get("Location"), "", acme).want(200)
			}
		}
	})
	t.Run("it is ready", func(t *testing.T) {
		s.do(t, "GET", "/readyz", "", header{"Authorization", ""}).want(200)
	})
}

func TestADatabaseThatIsAwayIsUnavailable(t *testing.T) {
	s, db := overPostgres(t)
	key := keyFor(t, db, "acme")
	s.do(t, "GET", "/v1/notifications", "", key).want(200)
	db.Close()
	a := s.do(t, "GET", "/v1/notifications", "", key)
	a.problem(503, "unavailable")
	if a.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.do(t, "GET", "/readyz", "").want(503)
	s.do(t, "GET", "/livez", "").want(200)
}
