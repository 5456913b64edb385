package twilio

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// WhatsAppPrefix stands before an address of WhatsApp at Twilio.
const WhatsAppPrefix = "whatsapp:"

// The words by which people stop and start, as Twilio itself takes them where a
// Messaging Service has no list of its own: whole messages of one word, in any
// case.
//
// Sources: twilio.com/docs/messaging/tutorials/advanced-opt-out and
// help.twilio.com, article 223134027.
var (
	stopWords = map[string]bool{
		"STOP": true, "STOPALL": true, "UNSUBSCRIBE": true, "CANCEL": true, "END": true, "QUIT": true, "REVOKE": true, "OPTOUT": true,
	}
	startWords = map[string]bool{"START": true, "UNSTOP": true, "YES": true}
)

// noReply is TwiML that answers the person with nothing.
const noReply = `<?xml version="1.0" encoding="UTF-8"?><Response/>`

var person = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

// inboundReport reads a message that somebody wrote: what of it is consent, or the
// end of it. The rest of a message is nothing to us and goes nowhere.
func inboundReport(ch notify.Channel, form url.Values) (channels.Report, error) {
	report := channels.Report{Answer: channels.CallbackAnswer{
		Status: http.StatusOK, ContentType: "text/xml; charset=utf-8", Body: []byte(noReply),
	}}
	phone, isWhatsApp := strings.CutPrefix(one(form, "From"), WhatsAppPrefix)
	switch {
	case phone == "":
		return channels.Report{}, refuse(http.StatusBadRequest, "From is missing")
	case isWhatsApp != (ch == notify.WhatsApp):
		return channels.Report{}, refuse(http.StatusBadRequest, "the message came by another channel than the account's")
	case !person.MatchString(phone):
		return report, nil // a short code or a name, which nothing is ever sent to
	}
	if c, ok := consent(form); ok {
		c.Target, c.ID = notify.Target{Phone: phone}, channels.Code(one(form, "MessageSid"))
		report.Consents = []channels.Consent{c}
	}
	return report, nil
}

// consent reads what a message says about being written to. Where Twilio itself
// has matched it to the keywords of a Messaging Service, which may be in any
// language, its word counts; else the text does.
func consent(form url.Values) (channels.Consent, bool) {
	if kind, ok := form["OptOutType"]; ok && len(kind) == 1 {
		switch word := strings.ToUpper(kind[0]); word {
		case "STOP", "START":
			return said(word, word == "STOP"), true
		}
		return channels.Consent{}, false // HELP, or another that is to come
	}
	word := strings.ToUpper(strings.TrimSpace(one(form, "Body")))
	if stop := stopWords[word]; stop || startWords[word] {
		return said(word, stop), true
	}
	return channels.Consent{}, false
}

func said(word string, stop bool) channels.Consent {
	c := channels.Consent{Stop: stop, Reason: "start", Code: word}
	if stop {
		c.Reason = "stop"
	}
	return c
}
