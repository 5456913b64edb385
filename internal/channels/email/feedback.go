package email

import (
	"strings"

	"github.com/emersion/go-message/textproto"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// complaint reads a report of abuse (RFC 5965), by which a mailbox provider says
// that a person took a message for spam, or wants no more of them.
func (r *mailReport) complaint() channels.Report {
	kind := strings.ToLower(strings.TrimSpace(r.feedback.Get("Feedback-Type")))
	consent := channels.Consent{Stop: true, Reason: "complaint", Code: channels.Code(kind)}
	switch kind {
	case "abuse", "fraud", "other":
	case "opt-out", "opt-out-list":
		consent.Reason = "unsubscribe"
	default: // not-spam is praise; virus and auth-failure are of machines
		return channels.Report{Answer: said("ignored: no complaint of a person")}
	}
	consent.Ref, _ = r.subject()
	consent.ID = channels.Text(strings.Trim(r.header.Get("Message-Id"), "<> "), 256)
	if address := complainant(r.feedback); address != "" {
		consent.Target = notify.Target{Email: &notify.EmailAddress{Address: address}}
	}
	if consent.Ref.IsZero() && consent.Target.Email == nil {
		return channels.Report{Answer: said("ignored: it names nobody")}
	}
	return channels.Report{Consents: []channels.Consent{consent}, Answer: said("taken: " + consent.Reason)}
}

// complainant is the address that the message went to, where the report still has
// it: many providers take it out.
func complainant(h *textproto.Header) string {
	address := strings.Trim(strings.TrimSpace(h.Get("Original-Rcpt-To")), "<>")
	return recipientAddress(address)
}

// recipientAddress is an address as notifications have it, empty for what is none.
func recipientAddress(address string) string {
	if _, err := parseMailbox(address, ""); err != nil {
		return ""
	}
	return address
}
