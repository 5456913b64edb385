package email

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/emersion/go-message"
	"github.com/emersion/go-message/mail"
	"github.com/emersion/go-message/textproto"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

const (
	// maxParts bounds how many parts of a message are looked at: a report has three.
	maxParts = 16
	// maxDepth bounds how deep they may lie: some servers wrap a report once more.
	maxDepth = 4
	// maxMailHeader bounds a header, and what is read of the original message, in
	// bytes.
	maxMailHeader = 256 << 10
	// maxGroups bounds the recipients of one report. A message of ours has one, and a
	// mailing list makes more of it.
	maxGroups = 100
)

// mailReport is what is read of a message that reports on another (RFC 6522).
type mailReport struct {
	kind      string // report-type
	date      time.Time
	header    message.Header
	status    []textproto.Header // groups of message/delivery-status (RFC 3464)
	feedback  *textproto.Header  // of message/feedback-report (RFC 5965)
	original  textproto.Header   // of the message reported on, as far as it came back
	returned  bool
	partsSeen int
}

// readMail reads what a message says of one of ours. Whatever the mailbox gets
// beside reports is taken and ignored: the pipe that feeds it cannot tell.
func readMail(body []byte) (channels.Report, error) {
	body = tolerable(body)
	root, err := message.ReadWithOptions(bytes.NewReader(body), &message.ReadOptions{MaxHeaderBytes: maxMailHeader})
	if root == nil || err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) || root.Header.Len() == 0 {
		return channels.Report{}, refuseCallback(http.StatusBadRequest, "the body is no message (RFC 5322)")
	}
	r := &mailReport{header: root.Header}
	kind, params, _ := root.Header.ContentType() // a malformed one is that of no report
	if !strings.EqualFold(kind, "multipart/report") {
		return channels.Report{Answer: said("ignored: no report")}, nil
	}
	r.kind = strings.ToLower(params["report-type"])
	h := mail.Header{Header: root.Header}
	if date, err := h.Date(); err == nil {
		r.date = date.UTC()
	}
	r.walk(root, 0)
	switch {
	case r.feedback != nil:
		return r.complaint(), nil
	case len(r.status) > 0:
		return r.delivery(), nil
	}
	return channels.Report{Answer: said("ignored: a report without a status")}, nil
}

// tolerable makes a message readable that is nearly one: without the line that
// mailboxes and pipes put before it, and without lines in its header that are no
// fields, which filters on the way leave there.
func tolerable(body []byte) []byte {
	if rest, ok := bytes.CutPrefix(body, []byte("From ")); ok {
		_, body, _ = bytes.Cut(rest, []byte("\n"))
	}
	var out []byte
	changed, rest := false, body
	for len(rest) > 0 {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		text := bytes.TrimRight(line, "\r")
		if len(text) == 0 {
			break
		}
		if isField(text) || len(out) > 0 && (text[0] == ' ' || text[0] == '\t') {
			out = append(append(out, text...), '\r', '\n')
		} else {
			changed = true
		}
		rest = after
	}
	if !changed {
		return body
	}
	return append(out, rest...)
}

// isField reports whether a line begins a header field: a name of printable ASCII
// and a colon.
func isField(line []byte) bool {
	name, _, ok := bytes.Cut(line, []byte(":"))
	return ok && len(name) > 0 && !bytes.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// walk collects the parts of the report. What breaks off ends it, with what came
// before.
func (r *mailReport) walk(e *message.Entity, depth int) {
	if r.partsSeen++; r.partsSeen > maxParts || depth > maxDepth {
		return
	}
	if parts := e.MultipartReader(); parts != nil {
		for {
			part, err := parts.NextPart()
			if part == nil || err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) || r.partsSeen > maxParts {
				return
			}
			r.walk(part, depth+1)
		}
	}
	kind, _, _ := e.Header.ContentType()
	switch strings.ToLower(kind) {
	case "message/delivery-status", "message/global-delivery-status":
		if r.status == nil {
			r.status = groups(e.Body)
		}
	case "message/feedback-report":
		if g := groups(e.Body); len(g) > 0 && r.feedback == nil {
			r.feedback = &g[0]
		}
	case "message/rfc822", "message/global", "text/rfc822-headers", "message/rfc822-headers", "message/global-headers":
		if !r.returned {
			r.original, r.returned = originalHeader(e.Body), true
		}
	}
}

// groups reads fields in groups with empty lines between them.
func groups(body io.Reader) []textproto.Header {
	text, _ := io.ReadAll(io.LimitReader(body, maxMailHeader)) // what breaks off still told something
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	var out []textproto.Header
	for block := range bytes.SplitSeq(text, []byte("\n\n")) {
		if block = bytes.TrimLeft(block, "\n"); len(block) == 0 {
			continue
		}
		if len(out) >= maxGroups {
			break
		}
		out = append(out, fields(block))
	}
	return out
}

// fields reads the header of block, which may be all of it.
func fields(block []byte) textproto.Header {
	block = append(tolerable(block), "\r\n\r\n"...)
	h, err := textproto.ReadHeader(bufio.NewReader(bytes.NewReader(block)))
	if err != nil && !errors.Is(err, io.EOF) {
		return textproto.Header{}
	}
	return h
}

// originalHeader is the header of the message that came back. Some servers indent
// it, or leave the rest of the message away.
func originalHeader(body io.Reader) textproto.Header {
	text, _ := io.ReadAll(io.LimitReader(body, maxMailHeader))
	text = bytes.TrimLeft(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), "\n")
	head, _, _ := bytes.Cut(text, []byte("\n\n"))
	return fields(head)
}

// subject is the message that a report is about: the delivery, where the message
// names it, and its Message-ID, where it came back.
func (r *mailReport) subject() (ref channels.Ref, id string) {
	id = idOf(r.original.Get("Message-ID"))
	candidates := []string{r.original.Get(refHeader), id}
	for i := range r.status {
		candidates = append(candidates, r.status[i].Get("Original-Envelope-Id"))
	}
	candidates = append(candidates, strings.Fields(r.header.Get("In-Reply-To"))...)
	candidates = append(candidates, strings.Fields(r.header.Get("References"))...)
	for _, text := range candidates {
		if ref, ok := refOf(text); ok {
			return ref, id
		}
	}
	return channels.Ref{}, id
}

// idOf is a Message-ID as a delivery's attempt has it, empty for what is none.
func idOf(field string) string {
	id := strings.TrimSpace(field)
	if len(id) < 5 || len(id) > 256 || id[0] != '<' || id[len(id)-1] != '>' || strings.ContainsAny(id, " \t\r\n") {
		return ""
	}
	return id
}
