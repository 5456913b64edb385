package channels

import (
	"strings"
	"unicode/utf8"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Limits of the texts that a Result carries into the database.
const (
	maxCode   = 64
	maxDetail = 256
	maxID     = 256
	maxScope  = 64
)

// Ok returns the result of an accepted message. Without an id, where the
// provider gives one, a message is not accepted: use [Exchange.Default].
func Ok(messageID string) Result {
	return Result{Outcome: notify.Accepted, Status: notify.Sent, MessageID: messageID}
}

// Clean returns r with its texts made fit for the database and for a log: valid
// UTF-8 without control characters, bounded, and with a status where accepted.
// The dispatcher calls it on every Result, so an adapter need not.
func (r Result) Clean() Result {
	r.Code = Text(r.Code, maxCode)
	r.Detail = Text(r.Detail, maxDetail)
	r.MessageID = Text(r.MessageID, maxID)
	r.Scope = Text(r.Scope, maxScope)
	if !r.Outcome.Valid() {
		r.Outcome, r.Detail = notify.Unknown, "adapter gave no outcome"
	}
	if r.Outcome == notify.Accepted && !notify.UntilAccepted.MetBy(r.Status) {
		r.Status = notify.Sent
	}
	if r.RetryAfter < 0 {
		r.RetryAfter = 0
	}
	return r
}

// Text makes s valid UTF-8 without control characters and cuts it to at most n
// bytes at a rune's end.
func Text(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
