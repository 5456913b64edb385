package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// entry is what a timeline's entries are told by.
type entry struct {
	At      time.Time  `json:"at"`
	Type    string     `json:"type"`
	Step    *int       `json:"step"`
	Channel string     `json:"channel"`
	Account string     `json:"account"`
	Because string     `json:"because"`
	Until   *time.Time `json:"until"`
	Outcome string     `json:"outcome"`
	Status  string     `json:"status"`
	Code    string     `json:"provider_code"`
	Final   bool       `json:"final"`
}

// String is the entry in one line, its instants in seconds after noon.
func (e entry) String() string {
	parts := []string{fmt.Sprint(e.At.Sub(noon).Seconds()), e.Type}
	if e.Step != nil {
		parts = append(parts, fmt.Sprintf("%d/%s", *e.Step, e.Channel))
	}
	for _, s := range []string{e.Account, e.Outcome, e.Status, e.Code, e.Because} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if e.Until != nil {
		parts = append(parts, fmt.Sprintf("until %v", e.Until.Sub(noon).Seconds()))
	}
	if e.Final {
		parts = append(parts, "final")
	}
	return strings.Join(parts, " ")
}

func TestTheTimelineTellsTheStoryInOrder(t *testing.T) {
	t.Parallel()
	s := newService(t)
	id := uuid.Must(uuid.NewV7())
	at := func(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }
	sms, email := store.DeliveryID{Notification: id}, store.DeliveryID{Notification: id, Step: 1}
	event := func(seconds float64, d *store.DeliveryID, kind, because string, until float64, final bool) store.LoggedEvent {
		e := store.LoggedEvent{Event: store.Event{At: at(seconds), ID: store.DeliveryID{Notification: id}, Whole: d == nil, Type: kind, Because: because, Final: final}}
		if d != nil {
			e.ID = *d
		}
		if until > 0 {
			e.Until = at(until)
		}
		return e
	}
	s.records = []store.Record{{
		Notification: notify.Notification{
			ID: id, Project: "acme", Mode: notify.First, CreatedAt: at(0), SendAt: at(10), ExpiresAt: at(86400),
			Chain: []notify.Step{{Channel: notify.SMS, Success: notify.UntilDelivered, Attempts: 4}, {Channel: notify.Email, Success: notify.UntilAccepted, Attempts: 4}},
		},
		Deliveries: []store.Delivery{
			{DeliveryID: sms, Targets: 1, Status: notify.Delivered, Final: true, StartedAt: at(10), FinishedAt: at(30), StartedWhy: "first"},
			{DeliveryID: email, Targets: 1, Status: notify.Canceled, Final: true, StartedAt: at(30), FinishedAt: at(40), StartedWhy: "fallback: undelivered: recipient_unavailable"},
		},
		Attempts: []store.Attempt{
			{DeliveryID: sms, N: 1, Account: "twilio-main", StartedAt: at(11), Outcome: notify.Throttled, ProviderCode: "20429"},
			{DeliveryID: sms, N: 2, Account: "twilio-main", StartedAt: at(14), Outcome: notify.Accepted},
		},
		Receipts: []store.Receipt{
			{DeliveryID: sms, Account: "twilio-main", Status: notify.Sent, At: at(15), ReceivedAt: at(16), MessageID: "SM1"},
			{DeliveryID: sms, Account: "twilio-main", Status: notify.Failed, Outcome: notify.RecipientUnavailable, Code: "30003", ReceivedAt: at(29)},
			{DeliveryID: sms, Account: "twilio-main", Status: notify.Delivered, ReceivedAt: at(39)},
		},
		// The second one by a node whose clock is a little behind.
		Events: []store.LoggedEvent{
			event(0, nil, "accepted", "", 0, false),
			event(12, &sms, "waiting", "throttled", 14, false),
			event(11.9, &sms, "sent", "delivered", 130, false),
			event(30, &sms, "failed", "undelivered: recipient_unavailable", 0, false),
			event(31, &email, "waiting", "breaker_open", 61, false),
			event(40, &sms, "corrected", "delivered", 0, false),
			event(40, &email, "canceled", "superseded", 0, false),
			event(40, nil, "finished", "delivered", 0, true),
		},
	}}
	var got struct {
		Timeline []entry `json:"timeline"`
		Steps    []struct {
			Receipts []map[string]any `json:"receipts"`
		} `json:"steps"`
	}
	s.do(t, "GET", "/v1/notifications/"+id.String(), "").want(200).into(&got)
	var lines []string
	for _, e := range got.Timeline {
		lines = append(lines, e.String())
	}
	want := []string{
		"0 accepted",
		"0 waiting scheduled until 10",
		"10 started 0/sms first",
		"11 attempt 0/sms twilio-main throttled 20429",
		"12 waiting 0/sms throttled until 14",
		"12 sent 0/sms delivered until 130",
		"14 attempt 0/sms twilio-main accepted",
		"16 receipt 0/sms twilio-main sent",
		"29 receipt 0/sms twilio-main recipient_unavailable failed 30003",
		"30 failed 0/sms undelivered: recipient_unavailable",
		"30 started 1/email fallback: undelivered: recipient_unavailable",
		"31 waiting 1/email breaker_open until 61",
		"39 receipt 0/sms twilio-main delivered",
		"40 corrected 0/sms delivered",
		"40 canceled 1/email superseded",
		"40 finished delivered final",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("timeline (-want +got):\n%s", diff)
	}
	if len(got.Steps) != 2 || len(got.Steps[0].Receipts) != 3 || len(got.Steps[1].Receipts) != 0 {
		t.Fatalf("steps %+v", got.Steps)
	}
	first := map[string]any{
		"status": "sent", "at": "2026-12-01T12:00:15Z", "received_at": "2026-12-01T12:00:16Z", "account": "twilio-main", "provider_message_id": "SM1",
	}
	if diff := cmp.Diff(first, got.Steps[0].Receipts[0]); diff != "" {
		t.Errorf("receipts (-want +got):\n%s", diff)
	}
	if list := s.do(t, "GET", "/v1/notifications", "").want(200).Body.String(); strings.Contains(list, "timeline") {
		t.Error("a list tells whole stories")
	}
}
