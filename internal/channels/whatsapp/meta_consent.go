package whatsapp

import (
	"regexp"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// The words by which people stop and start, as a whole message or the text of a
// button, in any case. Meta leaves them to the business. They are those that are
// usual for SMS, without the ones that answer a question as well, such as "end"
// and "yes".
var (
	stopWords  = map[string]bool{"STOP": true, "STOPALL": true, "STOP ALL": true, "UNSUBSCRIBE": true, "OPTOUT": true, "OPT OUT": true}
	startWords = map[string]bool{"START": true, "UNSTOP": true, "SUBSCRIBE": true, "OPTIN": true, "OPT IN": true}
)

// metaInbound is a message that a person wrote. What it says beside the words
// above is nothing to us and goes nowhere.
type metaInbound struct {
	From      string      `json:"from"`
	ID        string      `json:"id"`
	Timestamp metaSeconds `json:"timestamp"`
	Type      string      `json:"type"`
	Text      struct {
		Body string `json:"body"`
	} `json:"text"`
	Button struct {
		Text string `json:"text"`
	} `json:"button"` // a quick reply of a template
	Interactive struct {
		ButtonReply struct {
			Title string `json:"title"`
		} `json:"button_reply"`
	} `json:"interactive"`
}

func (m *metaInbound) consents() []channels.Consent {
	var text string
	switch m.Type {
	case "text":
		text = m.Text.Body
	case "button":
		text = m.Button.Text
	case "interactive":
		text = m.Interactive.ButtonReply.Title
	}
	if len(text) > 64 { // longer than any of the words, whatever stands around it
		return nil
	}
	word := strings.Join(strings.Fields(strings.ToUpper(strings.Trim(text, " \t\r\n.!"))), " ")
	if stop := stopWords[word]; stop || startWords[word] {
		said := channels.Consent{Stop: stop, Code: strings.ReplaceAll(word, " ", ""), ID: channels.Text(m.ID, maxMessageID), At: m.Timestamp.time()}
		return consentsOf(m.From, said)
	}
	return nil
}

// metaPreference is what a person set in WhatsApp itself about marketing messages
// of this business.
type metaPreference struct {
	WhatsAppID string      `json:"wa_id"`
	Category   string      `json:"category"`
	Value      string      `json:"value"`
	Timestamp  metaSeconds `json:"timestamp"`
}

func (m *metaPreference) consents() []channels.Consent {
	if m.Category != "marketing_messages" || m.Value != "stop" && m.Value != "resume" {
		return nil
	}
	return consentsOf(m.WhatsAppID, channels.Consent{Stop: m.Value == "stop", Code: "marketing_messages", At: m.Timestamp.time()})
}

var whatsAppID = regexp.MustCompile(`^[1-9][0-9]{6,14}$`)

// consentsOf is what the person of a WhatsApp id said, for each of its numbers.
func consentsOf(id string, said channels.Consent) []channels.Consent {
	if !whatsAppID.MatchString(id) {
		return nil
	}
	if said.Reason = "start"; said.Stop {
		said.Reason = "stop"
	}
	var out []channels.Consent
	for _, phone := range numbersOf(id) {
		said.Target = notify.Target{Phone: phone}
		out = append(out, said)
	}
	return out
}

// maxMessageID is more than any id of a message has.
const maxMessageID = 256

// respelt are the numbering plans whose mobile numbers have two spellings, of
// which WhatsApp may have kept the older one as the person's id: a digit after
// the country code that is dialled, or was once.
var respelt = []struct {
	country, digit string
	long           int // digits of the longer spelling
	area           int // digits between country and digit
}{
	{"52", "1", 13, 0}, // Mexico, until 2019
	{"54", "9", 13, 0}, // Argentina, from abroad
	{"55", "9", 13, 2}, // Brazil, added until 2016
}

// numbersOf are the numbers that a WhatsApp id can stand for: itself and, where
// the country has two spellings of the same line, the other.
func numbersOf(id string) []string {
	out := []string{"+" + id}
	for _, r := range respelt {
		at := len(r.country) + r.area
		if !strings.HasPrefix(id, r.country) || len(id) <= at {
			continue
		}
		switch {
		case len(id) == r.long && strings.HasPrefix(id[at:], r.digit):
			out = append(out, "+"+id[:at]+id[at+len(r.digit):])
		case len(id) == r.long-len(r.digit):
			out = append(out, "+"+id[:at]+r.digit+id[at:])
		}
	}
	return out
}
