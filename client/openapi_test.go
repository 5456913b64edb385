package client_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/client"
)

// members lists the names that a struct has in JSON.
func members(t reflect.Type) []string {
	var out []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "-" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func TestTypesHaveTheMembersOfTheAPI(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any
			}
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for schema, v := range map[string]any{
		"NotificationRequest": client.Notification{}, "StepRequest": client.Step{}, "Recipient": client.To{}, "Device": client.Device{},
		"WebPushKeys": client.WebPushKeys{}, "MailboxObject": client.EmailAddress{}, "SlackTarget": client.SlackTarget{},
		"TargetedHook": client.WebhookTarget{}, "Content": client.Content{}, "PushContent": client.PushContent{},
		"SmsContent": client.SMSContent{}, "WhatsAppContent": client.WhatsAppContent{}, "WhatsAppTemplate": client.WhatsAppTemplate{},
		"EmailContent": client.EmailContent{}, "Attachment": client.Attachment{}, "SlackContent": client.SlackContent{},
		"WebhookContent": client.WebhookContent{}, "Accepted": client.Receipt{}, "NotificationView": client.Status{},
		"WaitingView": client.Waiting{}, "StepStatus": client.StepStatus{}, "AttemptView": client.Attempt{}, "ErrorDetail": client.FieldError{},
		"AckOutputBody": client.Acknowledgement{}, "EventView": client.Event{}, "ReceiptView": client.StatusReceipt{}, "TimelineEntry": client.Entry{},
	} {
		var want []string
		for name := range doc.Components.Schemas[schema].Properties {
			want = append(want, name)
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, members(reflect.TypeOf(v))); diff != "" {
			t.Errorf("%s (-API +client):\n%s", schema, diff)
		}
	}
}
