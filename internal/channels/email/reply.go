package email

import (
	"regexp"
	"strconv"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// reply is a server's answer: the code of RFC 5321 and, where the text begins
// with one, the subject and detail of the enhanced code of RFC 3463. The class is
// the code's own digit, also where the two disagree.
type reply struct {
	code            int
	subject, detail int // -1 without an enhanced code
}

var enhancedPattern = regexp.MustCompile(`^[245]\.([0-9]{1,3})\.([0-9]{1,3})(?:[ \n]|$)`)

func parseReply(code int, text string) reply {
	r := reply{code: code, subject: -1, detail: -1}
	if m := enhancedPattern.FindStringSubmatch(text); m != nil {
		r.subject, _ = strconv.Atoi(m[1])
		r.detail, _ = strconv.Atoi(m[2])
	}
	return r
}

func (r reply) class() int { return r.code / 100 }

// String returns the codes, such as "550 5.1.1".
func (r reply) String() string {
	s := strconv.Itoa(r.code)
	if r.subject < 0 {
		return s
	}
	return s + " " + strconv.Itoa(r.class()) + "." + strconv.Itoa(r.subject) + "." + strconv.Itoa(r.detail)
}

// domainGone is how long an address stays on the suppression list whose domain
// did not exist. That may be a fault of DNS, which a mailbox is not.
const domainGone = 7 * 24 * time.Hour

// result classifies an answer that refused the message at st.
func (r reply) result(st stage) channels.Result {
	res := channels.Result{Code: r.String()}
	switch {
	case r.class() == 4:
		res.Outcome = r.passing(st)
	case r.class() != 5:
		// Neither a refusal nor what the protocol has here.
		res.Outcome, res.Detail = notify.ProviderUnavailable, "unexpected reply"
		if st == stageDot {
			res.Outcome = notify.Unknown
		}
	case st == stageRcpt || st == stageData || st == stageDot:
		res.Outcome = r.refused(st)
		res.Suppress, res.SuppressFor = r.dead()
	case st == stageMail:
		res.Outcome = r.refusedSender()
	case st == stageAuth || r.subject == 7 || r.code == 530:
		res.Outcome = notify.AccountRejected
	default:
		res.Outcome = notify.ProviderUnavailable
	}
	if res.Detail == "" {
		res.Detail = "refused at " + string(st)
	}
	return res
}

// passing classifies a 4yz. RFC 5321, 4.2.5: the message was not taken, also where
// the answer comes after the end of the data.
func (r reply) passing(st stage) notify.Outcome {
	atRecipient := st == stageRcpt || st == stageData || st == stageDot
	switch {
	case !atRecipient, r.code == 421, r.code == 454, r.code == 455:
		return notify.ProviderUnavailable
	case r.subject == 1, r.subject == 2, r.subject == 7, r.subject == 5 && r.detail == 3:
		return notify.RecipientUnavailable // a full mailbox, a greylist, too many recipients
	case r.subject >= 0:
		return notify.ProviderUnavailable
	case r.code == 450, r.code == 451, r.code == 452:
		return notify.RecipientUnavailable
	}
	return notify.ProviderUnavailable
}

// refusedSender classifies a 5yz to MAIL, which says nothing of the recipient.
func (r reply) refusedSender() notify.Outcome {
	switch {
	case r.subject == 3 && r.detail == 4, r.subject == 2 && r.detail == 3, r.subject == 5, r.subject == 6:
		return notify.MessageRejected
	case r.subject >= 0:
		return notify.AccountRejected
	case r.code == 552, r.code == 555, r.code == 504:
		return notify.MessageRejected
	}
	return notify.AccountRejected
}

// refused classifies a 5yz about a recipient or a message.
func (r reply) refused(st stage) notify.Outcome {
	switch r.subject {
	case 1:
		if r.detail == 7 || r.detail == 8 { // the sender's mailbox, the sender's system
			return notify.AccountRejected
		}
		return notify.RecipientRejected
	case 2:
		switch r.detail {
		case 2: // full
			return notify.RecipientUnavailable
		case 3: // longer than the recipient takes
			return notify.MessageRejected
		}
		return notify.RecipientRejected
	case 4: // no way to the recipient's domain
		return notify.RecipientRejected
	case 5:
		if r.detail == 3 { // too many recipients: RFC 5321, 4.5.3.1.10 has it temporary
			return notify.RecipientUnavailable
		}
		return notify.MessageRejected
	case 7:
		return r.refusedByPolicy()
	case 0, 3, 6:
		return notify.MessageRejected
	}
	return r.refusedPlainly(st)
}

// refusedByPolicy classifies x.7.z. A general 5.7.1 may be one recipient's own
// rule, so it must not take the whole account out of service.
func (r reply) refusedByPolicy() notify.Outcome {
	switch {
	case r.detail == 0, r.detail >= 8 && r.detail <= 14: // authentication, RFC 4954 and 5248
		return notify.AccountRejected
	case r.detail >= 20 && r.detail <= 28: // DKIM, SPF, reverse DNS, DMARC and floods, RFC 7372
		return notify.AccountRejected
	case r.detail == 17 || r.detail == 18: // another person has the address now, RFC 7293
		return notify.RecipientRejected
	}
	return notify.MessageRejected
}

// refusedPlainly classifies a 5yz without an enhanced code.
func (r reply) refusedPlainly(st stage) notify.Outcome {
	switch r.code {
	case 530, 534, 535, 538:
		return notify.AccountRejected
	case 550, 551, 553:
		if st != stageDot {
			return notify.RecipientRejected
		}
	case 552:
		if st != stageDot { // a full mailbox, or what should be 452
			return notify.RecipientUnavailable
		}
	}
	return notify.MessageRejected
}

// dead reports whether the address itself is dead, and for how long it is to be
// left alone; 0 is for good.
func (r reply) dead() (bool, time.Duration) {
	switch {
	case r.subject == 1 && r.detail == 2:
		return true, domainGone
	case r.subject == 1 && (r.detail == 1 || r.detail == 3 || r.detail == 6 || r.detail == 10),
		r.subject == 2 && r.detail == 1,
		r.subject == 7 && (r.detail == 17 || r.detail == 18):
		return true, 0
	}
	return false, 0
}
