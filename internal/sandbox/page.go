package sandbox

import (
	"bytes"
	"embed"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

//go:embed page.html static
var pageFiles embed.FS

// pageTemplates parse once; they are part of the program.
var pageTemplates = template.Must(template.New("page").Funcs(template.FuncMap{
	"pretty": pretty, "json": isJSON, "clock": clock, "verdict": verdict, "answered": answered, "reached": reached,
}).ParseFS(pageFiles, "page.html"))

// cardsShown is how many messages the page shows.
const cardsShown = 200

// pagePolicy lets the page load what it is served with and nothing else.
const pagePolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; frame-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"

// mailPolicy holds a received mail's HTML in a cage: no script, no network.
const mailPolicy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"

func (s *Server) getPage(w http.ResponseWriter, _ *http.Request) {
	cards := s.cards(0)
	last := int64(0)
	if len(cards) > 0 {
		last = cards[0].Seq
	}
	s.render(w, "page", map[string]any{
		"Cards": cards, "Last": last, "HTTP": s.HTTPURL(), "SMTP": s.SMTPAddr(),
		"Providers": providers(), "Scripted": ScriptedRecipients(), "Domain": scriptedDomain,
	})
}

// getCards answers the cards of messages after ?after=, newest first, as HTML.
func (s *Server) getCards(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		problem(w, http.StatusBadRequest, "invalid_parameter", "", "after must be a message's seq")
		return
	}
	cards := s.cards(after)
	last := after
	if len(cards) > 0 {
		last = cards[0].Seq
	}
	// A page from before a restart is ahead, and must begin again.
	w.Header().Set("X-Sandbox-Last", strconv.FormatInt(min(last, s.messages.lastSeq()), 10))
	s.render(w, "cards", cards)
}

func (s *Server) cards(after int64) []Message {
	cards := s.Messages(Filter{After: after, Last: cardsShown})
	slices.Reverse(cards)
	return cards
}

func (l *messageLog) lastSeq() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (s *Server) render(w http.ResponseWriter, name string, data any) {
	var out bytes.Buffer
	if err := pageTemplates.ExecuteTemplate(&out, name, data); err != nil {
		s.cfg.Logger.Error("page could not be rendered", slog.Any("error", err))
		problem(w, http.StatusInternalServerError, "internal", "", "the page could not be rendered")
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Cache-Control", "no-store")
	_, _ = out.WriteTo(w)
}

// getMail is a mail's HTML alone, for a frame.
func (s *Server) getMail(w http.ResponseWriter, r *http.Request) {
	seq, err := strconv.ParseInt(r.PathValue("seq"), 10, 64)
	var e *entry
	if err == nil {
		e = s.messages.numbered(seq)
	}
	if e == nil || e.provider != smtpProvider {
		problem(w, http.StatusNotFound, "not_found", "", "no such mail is remembered")
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", mailPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(e.view().HTML))
}

func (s *Server) getStatic(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeFileFS(w, r, pageFiles, "static/"+r.PathValue("file")) //nolint:gosec // an embedded file system has no outside
}

func isJSON(s string) bool {
	k := jsontext.Value(s).Kind()
	return (k == '{' || k == '[') && jsontext.Value(s).IsValid()
}

// pretty indents JSON and leaves other text alone.
func pretty(s string) string {
	if !isJSON(s) {
		return s
	}
	v := jsontext.Value(strings.Clone(s))
	if v.Indent(jsontext.WithIndent("  ")) != nil {
		return s
	}
	return string(v)
}

func clock(m Message) string { return m.ReceivedAt.Format("15:04:05.000") }

// verdict is the class of a message's chip.
func verdict(m Message) string {
	switch {
	case m.Answer.Drop != "":
		return "dropped"
	case m.Answer.Accepted:
		return "accepted"
	}
	return "refused"
}

// reached is the class of a card whose message no person would have seen.
func reached(m Message) string {
	if m.Answer.Accepted {
		return "reached"
	}
	return "unreached"
}

// answered says in a word or two what became of a call.
func answered(m Message) string {
	switch a := m.Answer; {
	case a.Drop == DropAfter:
		return "accepted, not answered"
	case a.Drop == DropBefore:
		return "connection dropped"
	case a.Accepted:
		return "accepted"
	case a.Code != "":
		return strconv.Itoa(a.Status) + " " + a.Code
	default:
		return strconv.Itoa(a.Status)
	}
}
