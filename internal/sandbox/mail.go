package sandbox

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"strings"
)

// Attachment is a file that came with a mail.
type Attachment struct {
	Filename    string `json:"filename"`
	ContentType string `json:"content_type"`
	Size        int    `json:"size"` // bytes
	ContentID   string `json:"content_id,omitzero"`
}

// mailView is a mail as its reader sees it.
type mailView struct {
	subject, from, text, html string
	attachments               []Attachment
	headers                   []header
}

// maxParts bounds how deep and how broad a mail is looked into.
const maxParts = 100

// readMail takes a message apart; of one that is broken, what can be read.
func readMail(raw []byte) mailView {
	var v mailView
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		v.text = string(raw)
		return v
	}
	words := new(mime.WordDecoder)
	for name, values := range m.Header {
		for _, value := range values {
			if plain, err := words.DecodeHeader(value); err == nil {
				value = plain
			}
			v.headers = append(v.headers, header{name, value})
			switch name {
			case "Subject":
				v.subject = value
			case "From":
				v.from = value
			}
		}
	}
	left := maxParts
	v.part(partHeader(m.Header), m.Body, &left)
	return v
}

type partHeader map[string][]string

func (h partHeader) get(name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func (v *mailView) part(h partHeader, body io.Reader, left *int) {
	if *left--; *left < 0 {
		return
	}
	kind, params, err := mime.ParseMediaType(h.get("Content-Type"))
	if err != nil {
		kind = "text/plain"
	}
	if strings.HasPrefix(kind, "multipart/") {
		v.parts(multipart.NewReader(body, params["boundary"]), left)
		return
	}
	content, _ := io.ReadAll(decoded(h.get("Content-Transfer-Encoding"), body))
	disposition, fileParams, _ := mime.ParseMediaType(h.get("Content-Disposition"))
	switch {
	case disposition != "attachment" && kind == "text/plain" && v.text == "":
		v.text = string(content)
	case disposition != "attachment" && kind == "text/html" && v.html == "":
		v.html = string(content)
	default:
		name := fileParams["filename"]
		if name == "" {
			name = params["name"]
		}
		v.attachments = append(v.attachments, Attachment{
			Filename: name, ContentType: kind, Size: len(content), ContentID: strings.Trim(h.get("Content-Id"), "<>"),
		})
	}
}

func (v *mailView) parts(r *multipart.Reader, left *int) {
	for {
		p, err := r.NextRawPart()
		if err != nil {
			return
		}
		v.part(partHeader(p.Header), p, left)
	}
}

func decoded(encoding string, r io.Reader) io.Reader {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "base64":
		return base64.NewDecoder(base64.StdEncoding, r)
	case "quoted-printable":
		return quotedprintable.NewReader(r)
	}
	return r
}
