package email

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// sesEvent is what is read of a notification of Amazon SES, which calls its kind
// notificationType, or of a published event, which calls it eventType.
//
// Source: docs.aws.amazon.com/ses, Amazon SNS notification contents, and Contents
// of event data that Amazon SES publishes to Amazon SNS.
type sesEvent struct {
	NotificationType string  `json:"notificationType"`
	EventType        string  `json:"eventType"`
	Mail             sesMail `json:"mail"`
	Bounce           struct {
		Type       string       `json:"bounceType"`
		Subtype    string       `json:"bounceSubType"`
		Recipients []sesBounced `json:"bouncedRecipients"`
		Timestamp  string       `json:"timestamp"`
	} `json:"bounce"`
	Complaint struct {
		Recipients []sesBounced `json:"complainedRecipients"`
		Timestamp  string       `json:"timestamp"`
		Subtype    string       `json:"complaintSubType"`
		Feedback   string       `json:"complaintFeedbackType"`
		ID         string       `json:"feedbackId"`
	} `json:"complaint"`
	Delivery struct {
		Timestamp string `json:"timestamp"`
	} `json:"delivery"`
}

type sesMail struct {
	MessageID string `json:"messageId"`
	Timestamp string `json:"timestamp"`
	Headers   []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"headers"`
	Common struct {
		MessageID string `json:"messageId"`
	} `json:"commonHeaders"`
}

type sesBounced struct {
	Address    string `json:"emailAddress"`
	Action     string `json:"action"`
	Status     string `json:"status"`
	Diagnostic string `json:"diagnosticCode"`
}

// readSES reads the message in an envelope of SNS. What is no event of SES, such
// as the text by which it tries a topic, is taken and ignored.
func readSES(text string) channels.Report {
	var e sesEvent
	if json.Unmarshal([]byte(text), &e) != nil {
		return channels.Report{Answer: said("ignored: no event of ses")}
	}
	kind := e.NotificationType
	if kind == "" {
		kind = e.EventType
	}
	receipt := channels.Receipt{Ref: e.Mail.ref(), MessageID: sesID(e.Mail.MessageID)}
	if receipt.Ref.IsZero() && receipt.MessageID == "" {
		return channels.Report{Answer: said("ignored: it names no message")}
	}
	switch kind {
	case "Bounce":
		e.bounce(&receipt)
	case "Complaint":
		return e.complaint(receipt)
	case "Delivery":
		receipt.Status, receipt.At = notify.Delivered, sesTime(e.Delivery.Timestamp)
	case "Send":
		receipt.Status, receipt.At = notify.Sent, sesTime(e.Mail.Timestamp)
	case "Reject":
		receipt.Status, receipt.Outcome = notify.Failed, notify.MessageRejected
		receipt.Code, receipt.Detail = "Reject", "ses found malware in it"
	case "Rendering Failure":
		receipt.Status, receipt.Outcome = notify.Failed, notify.MessageRejected
		receipt.Code, receipt.Detail = "RenderingFailure", "ses could not render its template"
	default: // Open and Click are what programs do as well as people
		return channels.Report{Answer: said("ignored: it tells nothing of arriving")}
	}
	return channels.Report{Receipts: []channels.Receipt{receipt.Clean()}, Answer: said("taken: " + string(receipt.Status))}
}

// ref is the delivery, by the headers as they were before SES rewrote them.
func (m *sesMail) ref() channels.Ref {
	candidates := []string{m.Common.MessageID}
	for _, h := range m.Headers {
		if strings.EqualFold(h.Name, refHeader) || strings.EqualFold(h.Name, "Message-ID") {
			candidates = append(candidates, h.Value)
		}
	}
	for _, text := range candidates {
		if ref, ok := refOf(text); ok {
			return ref
		}
	}
	return channels.Ref{}
}

func sesTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}

// bounce says why SES could not deliver. The server's own words, where SES has
// them, are more exact than its types, but for the lists that SES keeps itself.
func (e *sesEvent) bounce(r *channels.Receipt) {
	b := &e.Bounce
	r.At = sesTime(b.Timestamp)
	kind := channels.Code(b.Type + "/" + b.Subtype)
	var first sesBounced
	if len(b.Recipients) > 0 {
		first = b.Recipients[0]
	}
	status := statusPattern.FindStringSubmatch(first.Status)
	switch {
	case b.Type == "Permanent" && b.Subtype == "Suppressed":
		r.Outcome, r.Suppress, r.Detail = notify.RecipientRejected, true, "on ses's own list of addresses that bounced"
	case b.Type == "Permanent" && b.Subtype == "OnAccountSuppressionList":
		// The operator's own list at SES decides, which may lose the address again.
		r.Outcome, r.Detail = notify.Suppressed, "on the suppression list of the account at ses"
	case b.Type == "Permanent" && b.Subtype == "UnsubscribedRecipient":
		r.Outcome, r.Detail = notify.Suppressed, "unsubscribed from a contact list at ses"
	case b.Type == "Transient" && status == nil && first.Action == "":
		// So an automatic answer looks, such as that somebody is away.
		r.Status, r.Code, r.Detail = notify.Sent, kind, "an answer that is no bounce"
		return
	case b.Type == "Transient" && (b.Subtype == "MessageTooLarge" || b.Subtype == "ContentRejected" || b.Subtype == "AttachmentRejected"):
		r.Outcome, r.Detail = notify.MessageRejected, "bounced for what is in it"
	case b.Type == "Permanent" && status != nil:
		said := enhanced("5", status[2], status[3])
		said.bounced(r)
	case b.Type == "Permanent":
		r.Outcome, r.Suppress, r.Detail = notify.RecipientRejected, true, "bounced for good"
	default:
		r.Outcome, r.Detail = notify.RecipientUnavailable, "bounced"
	}
	r.Status = notify.Failed
	if r.Code == "" {
		r.Code = kind
	}
}

// complaint: somebody complains of what has arrived, unless SES kept it back
// because of an earlier complaint.
func (e *sesEvent) complaint(r channels.Receipt) channels.Report {
	c := &e.Complaint
	r.At = sesTime(c.Timestamp)
	if c.Subtype == "OnAccountSuppressionList" {
		r.Status, r.Outcome, r.Code, r.Detail = notify.Failed, notify.Suppressed, "OnAccountSuppressionList", "on the suppression list of the account at ses"
		return channels.Report{Receipts: []channels.Receipt{r.Clean()}, Answer: said("taken: failed")}
	}
	r.Status = notify.Delivered
	report := channels.Report{Receipts: []channels.Receipt{r.Clean()}, Answer: said("taken: complaint")}
	if c.Feedback == "not-spam" {
		return report
	}
	consent := channels.Consent{
		Ref: r.Ref, Stop: true, Reason: "complaint", Code: channels.Code(c.Feedback), ID: channels.Text(c.ID, 256), At: r.At,
	}
	// SES names all recipients of the domain who may have complained. A message of
	// ours has one.
	if len(c.Recipients) == 1 {
		if address := recipientAddress(c.Recipients[0].Address); address != "" {
			consent.Target = notify.Target{Email: &notify.EmailAddress{Address: address}}
		}
	}
	if !consent.Ref.IsZero() || consent.Target.Email != nil {
		report.Consents = []channels.Consent{consent}
	}
	return report
}
