package email

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/emersion/go-message/textproto"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// delivery reads a delivery status notification (RFC 3464).
func (r *mailReport) delivery() channels.Report {
	ref, id := r.subject()
	if ref.IsZero() && id == "" {
		return channels.Report{Answer: said("ignored: it names no message")}
	}
	receipt, ok := statusOf(r.status)
	if !ok {
		return channels.Report{Answer: said("ignored: no status that is known")}
	}
	receipt.Ref, receipt.MessageID, receipt.At = ref, id, r.date
	return channels.Report{Receipts: []channels.Receipt{receipt.Clean()}, Answer: said("taken: " + string(receipt.Status))}
}

// statusOf is what the groups of recipients come to. A message of ours has one
// recipient; where a mailing list made more of it, it arrived if it did anywhere.
func statusOf(groups []textproto.Header) (best channels.Receipt, ok bool) {
	for i := range groups {
		r, known := recipientStatus(&groups[i])
		if known && (!ok || weight(r.Status) > weight(best.Status)) {
			best, ok = r, true
		}
	}
	return best, ok
}

func weight(s notify.Status) int {
	return slices.Index([]notify.Status{notify.Failed, notify.Sent, notify.Delivered}, s)
}

// recipientStatus reads the fields of one recipient (RFC 3464, section 2.3).
func recipientStatus(h *textproto.Header) (channels.Receipt, bool) {
	status := statusPattern.FindStringSubmatch(h.Get("Status"))
	action, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(h.Get("Action"))), " ")
	receipt := channels.Receipt{}
	if status != nil {
		receipt.Code = status[0]
	}
	switch action {
	case "failed":
		bounce(h, status, &receipt)
	case "delayed":
		receipt.Status, receipt.Detail = notify.Sent, "delayed: the server still tries"
	case "delivered":
		receipt.Status, receipt.Detail = notify.Delivered, "delivered to the mailbox"
	case "relayed", "expanded":
		receipt.Status, receipt.Detail = notify.Sent, "passed on to where nothing more is reported"
	default:
		return receipt, false
	}
	return receipt, true
}

var (
	// statusPattern is the enhanced code of a Status field, before any comment.
	statusPattern = regexp.MustCompile(`\b([245])\.([0-9]{1,3})\.([0-9]{1,3})\b`)
	// smtpPattern is what an SMTP server answered, in a Diagnostic-Code of type smtp.
	// Some write the code once more before the enhanced one.
	smtpPattern = regexp.MustCompile(`(?i)^\s*(?:x-)?(?:smtp|esmtp|microsoft exchange|rfc822|unix)?\s*;?\s*([245][0-9][0-9])[ -](?:[245][0-9][0-9][ -])?(?:#?([245])\.([0-9]{1,3})\.([0-9]{1,3}))?`)
)

// bounce says why a message failed, by the server's words and by the status that
// the reporting server made of them: whichever is more exact.
func bounce(h *textproto.Header, status []string, r *channels.Receipt) {
	r.Status = notify.Failed
	said := reply{code: 500, subject: -1, detail: -1}
	if status != nil {
		said = enhanced(status[1], status[2], status[3])
	}
	if m := smtpPattern.FindStringSubmatch(h.Get("Diagnostic-Code")); m != nil {
		code, _ := strconv.Atoi(m[1])
		if said.subject <= 0 && m[2] != "" { // the status says nothing, or "other"
			said = enhanced(m[2], m[3], m[4])
		}
		if code/100 == said.class() {
			said.code = code
		}
	}
	said.bounced(r)
}

func enhanced(class, subject, detail string) reply {
	r := reply{}
	r.code, _ = strconv.Atoi(class)
	r.code *= 100
	r.subject, _ = strconv.Atoi(subject)
	r.detail, _ = strconv.Atoi(detail)
	return r
}

// bounced fills a receipt of a message that a server gave up. What is passing for
// a server that tries again is, after it has, a recipient that cannot be reached.
func (r reply) bounced(receipt *channels.Receipt) {
	receipt.Status, receipt.Detail = notify.Failed, "bounced"
	switch {
	case r.class() != 5:
		receipt.Outcome, receipt.Detail = notify.RecipientUnavailable, "bounced after the server had tried for as long as it does"
	default:
		receipt.Outcome = r.refused(stageRcpt)
		receipt.Suppress, receipt.SuppressFor = r.dead()
	}
	switch {
	case r.code%100 != 0:
		receipt.Code = r.String()
	case r.subject >= 0:
		receipt.Code = strconv.Itoa(r.class()) + "." + strconv.Itoa(r.subject) + "." + strconv.Itoa(r.detail)
	}
}
