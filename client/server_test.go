package client_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/client"
	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/stream"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

// willing is a provider that takes everything.
type willing struct{ info channels.Info }

func (w willing) Info() channels.Info { return w.info }

func (willing) Send(context.Context, *channels.Message) channels.Result { return channels.Ok("id-1") }

// accounts are a registry's, whose health nobody asks for.
type accounts struct{ *dispatch.Registry }

func (accounts) Health(string) []httpapi.AccountHealth { return nil }

// service is the real API and a worker over Postgres, with one account for sms.
type service struct {
	*client.Client
	store    *store.Store
	url, key string
}

func start(t *testing.T) *service {
	t.Helper()
	db, err := store.Open(t.Context(), pgtest.URL(t), store.Options{MaxConnections: 8})
	if err != nil {
		t.Fatal(err)
	}
	account := &dispatch.Account{Timeout: time.Second, Provider: willing{channels.Info{
		Account: "sms-main", Channel: notify.SMS, Provider: "willing", MaxObservable: notify.Sent,
	}}}
	name := uuid.New()
	member := resilience.NewMember(db.Scopes(name), rand.Float64)
	node, err := dispatch.New(db, dispatch.Config{
		Node:      name,
		Registry:  dispatch.NewRegistry(map[notify.Channel]dispatch.Channel{notify.SMS: {MaxInFlight: 8, Accounts: []*dispatch.Account{account}}}),
		Admission: dispatch.NewCluster(member, nil), Metrics: (*telemetry.Metrics)(nil), Work: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	hub := stream.New(db, stream.Config{})
	done := make(chan error, 1)
	go func() {
		var shared sync.WaitGroup
		scopes := dispatch.Scopes{Member: member, Store: db, Logger: slog.New(slog.DiscardHandler)}
		shared.Go(func() { scopes.Run(ctx) })
		shared.Go(func() { hub.Run(ctx) })
		err := node.Run(ctx)
		shared.Wait()
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		db.Close()
	})
	server := httptest.NewServer(httpapi.New(httpapi.Config{
		Accept: node, Store: db, Keys: db, Accounts: accounts{node.Registry()}, Events: &httpapi.Events{Hub: hub, Store: db},
	}))
	t.Cleanup(server.Close)
	secret, _, err := db.CreateKey(t.Context(), "shop", "test", []string{"send", "read"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.URL, secret)
	if err != nil {
		t.Fatal(err)
	}
	return &service{c, db, server.URL, secret}
}

// final reads a notification until it has ended.
func (s *service) final(t *testing.T, id string) *client.Status {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		got, err := s.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if got.FinishedAt != nil {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("not final in time: %+v", got)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// everything is a notification with every member there is.
func everything() client.Notification {
	return client.Notification{
		To: client.To{
			Push: []client.Device{{Provider: "fcm", Token: "t"}, {Provider: "webpush", Endpoint: "https://push.example/x", Keys: &client.WebPushKeys{
				P256dh: strings.Repeat("A", 87), Auth: strings.Repeat("A", 22),
			}}},
			SMS: "+14155550100", WhatsApp: "+14155550100", Email: &client.EmailAddress{Address: "ana@example.com", Name: "Ana"},
			Slack: &client.SlackTarget{Channel: "C1"}, Webhook: &client.WebhookTarget{URL: "https://example.com", Headers: map[string]string{"X-A": "b"}},
		},
		Chain: []client.Step{{
			Channel: client.SMS, Account: "sms-main", Success: client.Accepted, Within: client.Duration(90 * time.Second), Attempts: 3, OnUnknown: "resend",
		}},
		Mode: client.AllSteps, Priority: client.High, SendAt: time.Now().Add(-time.Hour), ExpiresAt: time.Now().Add(time.Hour),
		Reference: "order-1", Metadata: map[string]any{"team": "core"},
		Content: client.Content{
			Title: "t", Body: "b", Data: map[string]any{"k": 1},
			Push: &client.PushContent{Title: "t", Body: "b", Image: "https://i.example", Data: map[string]any{"k": 1}, CollapseKey: "c", TTL: client.Duration(time.Hour)},
			SMS:  &client.SMSContent{Body: "b"},
			WhatsApp: &client.WhatsAppContent{Body: "b", Template: &client.WhatsAppTemplate{
				Name: "n", Language: "en", Variables: map[string]string{"1": "x"},
			}},
			Email: &client.EmailContent{
				Subject: "s", Text: "t", HTML: "h", From: &client.EmailAddress{Address: "a@b.c"}, ReplyTo: &client.EmailAddress{Address: "a@b.c"},
				UnsubscribeURL: "https://u.example", UnsubscribeMailto: "a@b.c",
				Attachments: []client.Attachment{{Filename: "f.txt", ContentType: "text/plain", Content: []byte("hi")}},
			},
			Slack:   &client.SlackContent{Text: "t", Blocks: []byte(`[{"type":"divider"}]`), Thread: "1700000000.000100"},
			Webhook: &client.WebhookContent{Payload: []byte(`{"a":1}`)},
		},
	}
}

func TestClientWorksWithTheRealService(t *testing.T) {
	t.Parallel()
	s := start(t)
	first, err := s.Send(t.Context(), everything())
	if err != nil {
		t.Fatal(err)
	}
	got := s.final(t, first.ID)
	if got.Status != "sent" || got.Reference != "order-1" || got.Metadata["team"] != "core" || got.Priority != client.High || got.Mode != client.AllSteps {
		t.Errorf("got %+v", got)
	}
	if step := got.Steps[0]; step.MaxAttempts != 3 || time.Duration(step.Within) != 90*time.Second || len(step.Attempts) != 1 ||
		step.Attempts[0].ProviderMessageID != "id-1" || step.Attempts[0].Outcome != "accepted" {
		t.Errorf("step %+v", got.Steps[0])
	}

	later := hi
	later.SendAt, later.IdempotencyKey = time.Now().Add(time.Hour), "once"
	waiting, err := s.Send(t.Context(), later)
	if err != nil || waiting.Wait == nil || waiting.Wait.Reason != "scheduled" {
		t.Fatalf("%+v, %v", waiting, err)
	}
	if again, err := s.Send(t.Context(), later); err != nil || again.ID != waiting.ID {
		t.Errorf("the same key gave %+v, %v", again, err)
	}
	later.Content.Body = "other"
	if _, err := s.Send(t.Context(), later); problem(t, err).Code != "idempotency_key_mismatch" {
		t.Errorf("the same key and another body: %v", err)
	}
	for _, want := range []client.CancelResult{client.Canceled, client.AlreadyFinal} {
		if result, err := s.Cancel(t.Context(), waiting.ID); err != nil || result != want {
			t.Errorf("canceled: %s, %v, want %s", result, err, want)
		}
	}
	seen, err := s.Acknowledge(t.Context(), waiting.ID)
	if err != nil || seen.Result != "already_final" || seen.AcknowledgedAt.IsZero() || seen.Calling != 0 {
		t.Errorf("acknowledged: %+v, %v", seen, err)
	}
	if _, err := s.Get(t.Context(), "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"); problem(t, err).Status != 404 {
		t.Errorf("one that is not there: %v", err)
	}
	wrong := hi
	wrong.To.SMS = "555"
	if _, err := s.Send(t.Context(), wrong); problem(t, err).Errors[0].Pointer != "/to/sms" {
		t.Errorf("a number that is none: %v", err)
	}
}

func problem(t *testing.T, err error) *client.Problem {
	t.Helper()
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || len(p.Errors) == 0 && p.Status == 422 {
		t.Fatalf("%v, want a problem", err)
	}
	return p
}

func TestListReadsPageAfterPage(t *testing.T) {
	t.Parallel()
	s := start(t)
	var want []string
	for i := range 7 {
		n := hi
		n.SendAt = time.Now().Add(time.Hour)
		if n.Reference = "even"; i%2 == 1 {
			n.Reference = "odd"
		}
		r, err := s.Send(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			want = append([]string{r.ID}, want...)
		}
	}
	var got []string
	for n, err := range s.List(t.Context(), client.Filter{Reference: "even", PageSize: 3, CreatedAfter: time.Now().Add(-time.Hour), Channel: client.SMS}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	for _, err := range s.List(t.Context(), client.Filter{PageSize: 3}) {
		if err != nil {
			t.Error(err)
		}
		break // must be possible
	}
	for _, err := range s.List(t.Context(), client.Filter{Status: "nonsense"}) {
		if problem(t, err).Errors[0].Parameter != "query.status" {
			t.Errorf("a status that is none: %v", err)
		}
	}
}

func TestEnqueueTxIsBoundToTheCallersTransaction(t *testing.T) {
	t.Parallel()
	s := start(t)
	begin := func() pgx.Tx {
		tx, err := s.store.Pool().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	lost, kept := begin(), begin()
	gone, err := client.EnqueueTx(t.Context(), lost, "shop", everything())
	if err != nil {
		t.Fatal(err)
	}
	n := everything()
	n.IdempotencyKey = "k"
	id, err := client.EnqueueTx(t.Context(), kept, "shop", n)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := client.EnqueueTx(t.Context(), kept, "shop", n); err != nil || again != id {
		t.Errorf("the same key gave %s, %v", again, err)
	}
	if err := errors.Join(lost.Rollback(t.Context()), kept.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := s.final(t, id); got.Status != "sent" || got.Steps[0].Attempts[0].N != 1 || got.Metadata["team"] != "core" {
		t.Errorf("got %+v", got)
	}
	if _, err := s.Get(t.Context(), gone); problem(t, err).Status != 404 {
		t.Errorf("one that was rolled back: %v", err)
	}
	n.To.SMS = "555"
	_, err = client.EnqueueTx(t.Context(), s.store.Pool(), "shop", n)
	if p := problem(t, err); p.Status != 422 || p.Errors[0].Pointer != "/to/sms" || p.Errors[0].Code != "format" {
		t.Errorf("a number that is none: %+v", p)
	}
	n = hi
	n.IdempotencyKey = "k"
	if _, err := client.EnqueueTx(t.Context(), s.store.Pool(), "shop", n); problem(t, err).Code != "idempotency_key_mismatch" {
		t.Errorf("the same key and another body: %v", err)
	}
}

func TestCancelForTxStopsByReference(t *testing.T) {
	t.Parallel()
	s := start(t)
	n := hi
	n.SendAt, n.Reference = time.Now().Add(time.Hour), "order-1"
	r, err := s.Send(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	if asked, err := client.CancelForTx(t.Context(), s.store.Pool(), "shop", "order-1"); err != nil || asked != 1 {
		t.Fatalf("asked to cancel %d, %v", asked, err)
	}
	if got := s.final(t, r.ID); got.Status != "canceled" {
		t.Errorf("ended %s, want canceled", got.Status)
	}
}

// A program that only sends should not carry a queue with it.
func TestClientNeedsNothingOfTheService(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "/internal/") && strings.Contains(line, "notification-dispatcher") || strings.Contains(line, "riverqueue") {
			t.Errorf("depends on %s", strings.TrimSpace(line))
		}
	}
}
