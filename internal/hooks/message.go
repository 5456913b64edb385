package hooks

import (
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Types of messages that are not about a notification.
const (
	TypeTest     = "webhook.test"
	TypeDisabled = "webhook.disabled"
)

// message is the body of a call, in the form that Standard Webhooks advises.
type message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the event, not of the call
	Data      data      `json:"data"`
}

// data is the event as the API shows it, with the notification's reference.
type data struct {
	ID             string         `json:"id,omitzero"` // the event's cursor
	NotificationID uuid.UUID      `json:"notification_id,omitzero"`
	WebhookID      uuid.UUID      `json:"webhook_id,omitzero"`
	Reference      string         `json:"reference,omitzero"`
	Type           string         `json:"type"`
	Step           *int           `json:"step,omitzero"`
	Target         *int           `json:"target,omitzero"`
	Channel        notify.Channel `json:"channel,omitzero"`
	Because        string         `json:"because,omitzero"`
	Final          bool           `json:"final"`
	Status         string         `json:"status,omitzero"` // the notification's, where it ends
}

// finished is the event that ends a notification where no delivery's own does.
const finished = "finished"

func newMessage(e *store.WebhookEvent, cursor string) message {
	m := message{Type: "notification." + e.Type, Timestamp: e.At.UTC(), Data: data{
		ID: cursor, Reference: e.Reference, Type: e.Type, Channel: e.Channel, Because: e.Because, Final: e.Final,
	}}
	if e.Type == store.EventWebhookDisabled {
		m.Type, m.Data.WebhookID = TypeDisabled, e.ID.Notification
		return m
	}
	m.Data.NotificationID = e.ID.Notification
	if !e.Whole {
		step, target := int(e.ID.Step), int(e.ID.Target)
		m.Data.Step, m.Data.Target = &step, &target
	}
	if e.Final {
		if m.Data.Status = e.Type; e.Type == finished {
			m.Data.Status, m.Data.Because = e.Because, ""
		}
	}
	return m
}

// label is what is kept beside a call: it names the message, so that the log needs
// not to look into it.
type label struct {
	// MessageID is the webhook-id: the same for an event and a webhook however
	// often it is told.
	MessageID      uuid.UUID `json:"message_id"`
	Event          string    `json:"event"`
	EventID        string    `json:"event_id,omitzero"`
	NotificationID uuid.UUID `json:"notification_id,omitzero"`
}

func labelOf(e *store.WebhookEvent, cursor string) label {
	l := label{MessageID: messageID(e), Event: e.Type, EventID: cursor}
	if e.Type != store.EventWebhookDisabled {
		l.NotificationID = e.ID.Notification
	}
	return l
}

// messageID names an event to a webhook. The position alone would not do: a
// database that was restored from a backup gives it again.
func messageID(e *store.WebhookEvent) uuid.UUID {
	text := strconv.FormatInt(e.Seq, 10) + " " + e.ID.Notification.String() + " " + e.Type
	return uuid.NewSHA1(e.Webhook, []byte(text))
}

// Call is one call to a webhook, as its log shows it.
type Call struct {
	store.Record
	MessageID      uuid.UUID
	Event          string // its type, such as sent, or [TypeTest]
	EventID        string // its cursor; empty for a test
	NotificationID uuid.UUID
}

func callOf(r store.Record) Call {
	c := Call{Record: r}
	if l, err := labelIn(&r.Notification); err == nil { // else it is shown without
		c.MessageID, c.Event, c.EventID, c.NotificationID = l.MessageID, l.Event, l.EventID, l.NotificationID
	}
	return c
}

func labelIn(n *notify.Notification) (label, error) {
	var l label
	err := notify.Decode(n.Metadata, &l)
	return l, err
}
