package sandbox

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Scripted is a recipient that decides how its messages fare.
type Scripted struct {
	Provider string `json:"provider"`
	// To is the recipient; for smtp, the part before @sandbox.test.
	To string `json:"to"`
	// Status and Code are the answer: HTTP status or SMTP reply, and the vendor's
	// code. A Status of 0 is the normal answer; Code is then the receipt's.
	Status int    `json:"status,omitzero"`
	Code   string `json:"code,omitzero"`
	// Once refuses only the first call of each message: a repeat is accepted. A
	// message is known by its delivery's key where the call carries one, else by
	// its content.
	Once bool `json:"once,omitzero"`
	// RetryAfter is the answer's Retry-After in seconds.
	RetryAfter int `json:"retry_after,omitzero"`
	// Delay passes before the answer.
	Delay notify.Duration `json:"delay,omitzero"`
	// Final is what its receipts end with, whatever /sandbox/receipts says.
	Final string `json:"final,omitzero"`
	// Note says it in words.
	Note string `json:"note"`
}

// ScriptedRecipients lists every recipient that scripts itself, by provider.
func ScriptedRecipients() []Scripted {
	return slices.Concat(twilioScripts(), metaScripts(), fcmScripts(), apnsScripts(), webPushScripts(),
		slackScripts(), slackWebhookScripts(), smtpScripts())
}

func scriptsByProvider() map[string]map[string]Scripted {
	out := map[string]map[string]Scripted{}
	for _, sc := range ScriptedRecipients() {
		if out[sc.Provider] == nil {
			out[sc.Provider] = map[string]Scripted{}
		}
		out[sc.Provider][sc.To] = sc
	}
	return out
}

// scripted returns the script of a recipient, or nil.
func (s *Server) scripted(provider, name string) *Scripted {
	if sc, ok := s.scripts[provider][name]; ok {
		return &sc
	}
	return nil
}

// refusalFor returns the refusal that a script makes of a message, if it does.
func (s *Server) refusalFor(sc *Scripted, key string) (reply, bool) {
	if sc == nil || sc.Status == 0 {
		return reply{}, false
	}
	if sc.Once && !s.refused.first(sc.Provider+" "+sc.To+" "+key) {
		return reply{}, false
	}
	rep := refusal(sc.Provider, sc.Status, sc.Code)
	if sc.RetryAfter > 0 {
		rep.header = append(rep.header, header{"Retry-After", strconv.Itoa(sc.RetryAfter)})
	}
	return rep, true
}

// outcomeName is what a token or channel is named after: "#archived-2" is
// "archived".
func outcomeName(to string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(to, "#"), "-")
	return name
}

// pushScripts are the outcomes that every push service knows.
func pushScripts(provider string, gone, invalid, auth, busy, down Scripted) []Scripted {
	out := []Scripted{gone, invalid, auth, busy, down}
	names := []string{"unregistered", "invalid", "auth", "ratelimited", "unavailable"}
	notes := []string{
		"the app was removed: a dead address", "no such address", "the account's credentials are refused",
		"429 on a message's first call, then accepted", "always down",
	}
	for i := range out {
		out[i].Provider, out[i].To, out[i].Note = provider, names[i], notes[i]
	}
	out[3].Once, out[3].RetryAfter = true, 2
	flaky := out[4]
	flaky.To, flaky.Once, flaky.Note = "flaky", true, "down on a message's first call, then accepted"
	return append(out, flaky)
}

func fcmScripts() []Scripted {
	return pushScripts(fcm,
		Scripted{Status: http.StatusNotFound, Code: "UNREGISTERED"},
		Scripted{Status: http.StatusBadRequest, Code: "INVALID_ARGUMENT"},
		Scripted{Status: http.StatusUnauthorized, Code: "THIRD_PARTY_AUTH_ERROR"},
		Scripted{Status: http.StatusTooManyRequests, Code: "QUOTA_EXCEEDED"},
		Scripted{Status: http.StatusServiceUnavailable, Code: "UNAVAILABLE"})
}

func apnsScripts() []Scripted {
	return pushScripts(apns,
		Scripted{Status: http.StatusGone, Code: "Unregistered"},
		Scripted{Status: http.StatusBadRequest, Code: "BadDeviceToken"},
		Scripted{Status: http.StatusForbidden, Code: "InvalidProviderToken"},
		Scripted{Status: http.StatusTooManyRequests, Code: "TooManyRequests"},
		Scripted{Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable"})
}

func webPushScripts() []Scripted {
	return pushScripts(webPush,
		Scripted{Status: http.StatusGone, Code: "106"},
		Scripted{Status: http.StatusNotFound, Code: "102"},
		Scripted{Status: http.StatusForbidden, Code: "109"},
		Scripted{Status: http.StatusTooManyRequests, Code: "202"},
		Scripted{Status: http.StatusServiceUnavailable, Code: "201"})
}
