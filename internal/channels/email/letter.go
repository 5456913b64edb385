package email

import (
	"fmt"
	"mime"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const (
	// maxSubject is in characters. It is ours: far more than anything shows.
	maxSubject = 998
	// maxFilename is in bytes, as most file systems have it.
	maxFilename = 255
	// maxURL is in bytes, so that the header's line stays below 998 (RFC 5322,
	// 2.1.1): a URL cannot be folded.
	maxURL = 900
)

// letter is a message that was found fit to send, read but not yet written.
type letter struct {
	from, to, replyTo   mailbox
	subject, text, html string
	unsubscribe         string // the value of List-Unsubscribe, or empty
	oneClick            bool
	files               []file
}

type file struct {
	disposition, mediaType string
	content                []byte
}

// utf8 reports whether the letter needs SMTPUTF8.
func (l *letter) utf8() bool { return l.from.utf8() || l.to.utf8() || l.replyTo.utf8() }

// read checks m and returns the letter that it becomes.
func (p *Provider) read(m *channels.Message) (*letter, *channels.CheckError) {
	l := &letter{from: p.from, replyTo: p.replyTo}
	l.subject, l.text, l.html = m.Content.EmailParts()
	e := m.Content.Email
	if e == nil {
		e = &notify.EmailContent{}
	}
	if err := p.readAddresses(l, m, e); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(l.subject) > maxSubject {
		field := "/content/email/subject"
		if e.Subject == "" {
			field = "/content/title"
		}
		return nil, &channels.CheckError{Field: field, Reason: "must be at most 998 characters"}
	}
	if l.text == "" && l.html == "" {
		return nil, &channels.CheckError{Field: "/content/email/text", Reason: "text, html or body must be given"}
	}
	if err := l.readUnsubscribe(e); err != nil {
		return nil, err
	}
	if err := l.readFiles(e.Attachments, p.cfg.MaxAttachmentBytes); err != nil {
		return nil, err
	}
	return l, nil
}

func (p *Provider) readAddresses(l *letter, m *channels.Message, e *notify.EmailContent) *channels.CheckError {
	if m.To.Email == nil {
		return &channels.CheckError{Field: "/to/email", Reason: "must be given"}
	}
	var err error
	if l.to, err = parseMailbox(m.To.Email.Address, m.To.Email.Name); err != nil {
		return &channels.CheckError{Field: "/to/email", Reason: err.Error()}
	}
	if e.From != nil {
		if !p.cfg.AllowFromOverride {
			return &channels.CheckError{Field: "/content/email/from", Reason: "this account has a sender of its own and allows no other"}
		}
		if l.from, err = parseMailbox(e.From.Address, e.From.Name); err != nil {
			return &channels.CheckError{Field: "/content/email/from", Reason: err.Error()}
		}
	}
	if e.ReplyTo != nil {
		if l.replyTo, err = parseMailbox(e.ReplyTo.Address, e.ReplyTo.Name); err != nil {
			return &channels.CheckError{Field: "/content/email/reply_to", Reason: err.Error()}
		}
	}
	return nil
}

// readUnsubscribe makes the header of RFC 2369, and says whether that of RFC 8058
// goes with it.
func (l *letter) readUnsubscribe(e *notify.EmailContent) *channels.CheckError {
	var uris []string
	if e.UnsubscribeURL != "" {
		u, ok := httpsURL(e.UnsubscribeURL)
		if !ok {
			return &channels.CheckError{Field: "/content/email/unsubscribe_url", Reason: "must be an https URL of at most 900 bytes"}
		}
		uris, l.oneClick = append(uris, "<"+u+">"), true
	}
	if e.UnsubscribeMailto != "" {
		to, err := parseMailbox(e.UnsubscribeMailto, "")
		if err != nil {
			return &channels.CheckError{Field: "/content/email/unsubscribe_mailto", Reason: err.Error()}
		}
		uris = append(uris, "<mailto:"+url.PathEscape(to.local)+"@"+to.domain+">")
	}
	l.unsubscribe = strings.Join(uris, ", ")
	return nil
}

// httpsURL returns raw as it may stand between angle brackets.
func httpsURL(raw string) (string, bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return "", false
	}
	host, err := asciiDomain(u.Hostname())
	if err != nil {
		return "", false
	}
	if port := u.Port(); port != "" {
		host += ":" + port
	}
	u.Host = host
	s := u.String()
	if len(s) > maxURL || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '<' || r == '>' }) {
		return "", false
	}
	return s, true
}

func (l *letter) readFiles(attachments []notify.Attachment, limit int64) *channels.CheckError {
	var total int64
	for i, a := range attachments {
		at := fmt.Sprintf("/content/email/attachments/%d/", i)
		disposition := mime.FormatMediaType("attachment", map[string]string{"filename": fileName(a.Filename)})
		if headerText(a.Filename) == "" || len(a.Filename) > maxFilename || disposition == "" {
			return &channels.CheckError{Field: at + "filename", Reason: "must be a name of 1 to 255 bytes"}
		}
		mediaType, ok := fileType(a.ContentType)
		if !ok {
			return &channels.CheckError{Field: at + "content_type", Reason: "must be a media type such as text/csv, neither multipart nor message"}
		}
		if total += int64(len(a.Content)); total > limit {
			return &channels.CheckError{
				Field:  "/content/email/attachments",
				Reason: fmt.Sprintf("must be at most %d bytes together", limit),
			}
		}
		l.files = append(l.files, file{disposition: disposition, mediaType: mediaType, content: a.Content})
	}
	return nil
}

// fileName leaves nothing in a name that is a path to the receiver.
func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' {
			return '_'
		}
		return r
	}, headerText(s))
}

// fileType returns a content type in canonical form. A composite type may not be
// encoded in base64 (RFC 2045, 6.4), so it cannot be a file.
func fileType(s string) (string, bool) {
	if s == "" {
		return "application/octet-stream", true
	}
	kind, params, err := mime.ParseMediaType(s)
	if err != nil || !strings.Contains(kind, "/") || len(s) > maxFilename ||
		strings.HasPrefix(kind, "multipart/") || strings.HasPrefix(kind, "message/") {
		return "", false
	}
	formatted := mime.FormatMediaType(kind, params)
	return formatted, formatted != ""
}
