package sandbox

import (
	"strconv"
	"strings"

	"github.com/emersion/go-smtp"
)

// smtpReply makes a reply of a code and a text that may begin with an enhanced
// code (RFC 3463).
func smtpReply(code int, text string) *smtp.SMTPError {
	e := &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 0, 0}, Message: text}
	first, rest, _ := strings.Cut(text, " ")
	if parts := strings.Split(first, "."); len(parts) == 3 {
		var ec smtp.EnhancedCode
		for i, p := range parts {
			n, err := strconv.Atoi(p)
			if err != nil || n < 0 || n > 999 {
				return e
			}
			ec[i] = n
		}
		e.EnhancedCode, e.Message = ec, rest
	}
	if e.Message == "" {
		e.Message = "the sandbox refuses"
	}
	e.Message = strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, e.Message)
	return e
}
