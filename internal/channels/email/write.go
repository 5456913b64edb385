package email

import (
	"bytes"
	"fmt"
	"io"
	"net/textproto"
	"strings"
	"time"
	"unicode/utf8"

	gomail "github.com/wneessen/go-mail"
)

// write returns the letter as a message (RFC 5322) with CRLF line ends. ref names
// the delivery, empty for none.
func (l *letter) write(id, ref string, date time.Time) ([]byte, error) {
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	msg.SetMessageIDWithValue(id)
	msg.SetDateWithValue(date)
	msg.FromMailAddress(l.from.header())
	msg.ToMailAddress(l.to.header())
	if !l.replyTo.empty() {
		msg.ReplyToMailAddress(l.replyTo.header())
	}
	if subject := encodeHeader(l.subject); subject != "" {
		msg.SetGenHeader(gomail.HeaderSubject, subject)
	}
	if ref != "" {
		msg.SetGenHeader(refHeader, ref)
	}
	// RFC 3834: so that nobody's absence is announced to us.
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	if l.unsubscribe != "" {
		msg.SetGenHeader(gomail.HeaderListUnsubscribe, l.unsubscribe)
	}
	if l.oneClick {
		msg.SetGenHeader(gomail.HeaderListUnsubscribePost, "List-Unsubscribe=One-Click")
	}
	l.writeBodies(msg)
	l.writeFiles(msg)
	var b bytes.Buffer
	if _, err := msg.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("write message: %w", err)
	}
	return b.Bytes(), nil
}

// writeBodies adds the text, the HTML, or both as alternatives with the better
// one last (RFC 2046, 5.1.4).
func (l *letter) writeBodies(msg *gomail.Msg) {
	if l.text != "" {
		body := crlf(l.text)
		msg.AddAlternativeString(gomail.TypeTextPlain, body, bodyEncoding(body))
	}
	if l.html != "" {
		body := crlf(l.html)
		msg.AddAlternativeString(gomail.TypeTextHTML, body, bodyEncoding(body))
	}
}

func (l *letter) writeFiles(msg *gomail.Msg) {
	files := make([]*gomail.File, len(l.files))
	for i, f := range l.files {
		files[i] = &gomail.File{
			// Both headers are set here: the library would put the name into an
			// encoded word inside quotes, which RFC 2047 forbids.
			Header: textproto.MIMEHeader{
				"Content-Type":        {f.mediaType},
				"Content-Disposition": {f.disposition},
			},
			Writer: func(w io.Writer) (int64, error) {
				n, err := w.Write(f.content)
				return int64(n), err
			},
		}
	}
	msg.SetAttachments(files)
}

var lineEnds = strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n")

// crlf returns s as valid UTF-8 with the line ends of a canonical text.
func crlf(s string) string { return lineEnds.Replace(strings.ToValidUTF8(s, "\uFFFD")) }

// bodyEncoding is quoted-printable, which people and filters can read, but base64
// for a text that it would make longer.
func bodyEncoding(s string) gomail.PartOption {
	outside := 0
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			outside++
		}
	}
	if outside > len(s)/6 {
		return gomail.WithPartEncoding(gomail.EncodingB64)
	}
	return gomail.WithPartEncoding(gomail.EncodingQP)
}
