package twilio

import (
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// What a code's Scope may be in the tables. A region and a recipient are kinds,
// made whole by resolve; the sender is one for each account: its From or its
// Messaging Service.
const (
	sender    = "sender"
	region    = "region"
	recipient = "recipient"
)

// Scopes names what Twilio's limits and permissions apply to besides the account:
// the sender, the recipient's region and the recipient.
func Scopes(c notify.Channel, t notify.Target) []string {
	return []string{sender, regionScope(t.Phone), channels.RecipientScope(c, t)}
}

func resolve(scope string, c notify.Channel, t notify.Target) string {
	switch scope {
	case region:
		return regionScope(t.Phone)
	case recipient:
		return channels.RecipientScope(c, t)
	}
	return scope
}

func regionScope(phone string) string { return region + ":" + callingCode(phone) }

// twoDigit lists the country codes of two digits (ITU-T E.164, list of assigned
// codes). All others have three but for 1 and 7.
const twoDigit = " 20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58" +
	" 60 61 62 63 64 65 66 81 82 84 86 90 91 92 93 94 95 98 "

// callingCode returns the digits at the start of an E.164 number that tell the
// country. Countries that share a code are told apart as far as prefixes can: the
// area code of +1, where Twilio's permission for the United States is not that
// for Jamaica, and the digit after +7, for Kazakhstan.
func callingCode(phone string) string {
	digits := strings.TrimPrefix(phone, "+")
	n := 3
	switch {
	case strings.HasPrefix(digits, "1"):
		n = 4
	case strings.HasPrefix(digits, "7"):
		n = 2
	case len(digits) >= 2 && strings.Contains(twoDigit, " "+digits[:2]+" "):
		n = 2
	}
	return digits[:min(n, len(digits))]
}
