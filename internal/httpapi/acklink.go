package httpapi

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"html/template"
	"log/slog"
	"net/http"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/links"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// AckLinks are the links in messages by which people acknowledge them.
type AckLinks interface {
	// Acknowledged returns which notification a link's token is for. The error is
	// [links.ErrInvalid] for one that was not made here.
	Acknowledged(ctx context.Context, token string) (uuid.UUID, error)
	// ProjectOf returns whose it is, or [store.ErrNotFound].
	ProjectOf(ctx context.Context, id uuid.UUID) (string, error)
}

//go:embed acklink.html
var ackHTML string

const (
	ackStyle = `:root{color-scheme:light dark}body{margin:0;min-height:100vh;display:grid;place-items:center;font:18px/1.5 system-ui,sans-serif}` +
		`main{max-width:28rem;padding:2rem;text-align:center}button{font:inherit;padding:.75rem 2rem;border:0;border-radius:.5rem;background:#0b57b0;color:#fff;cursor:pointer}` +
		`button:focus-visible{outline:3px solid currentcolor;outline-offset:3px}`
	// ackScript makes one click of two. Programs that follow links in messages, to
	// check or preview them, mostly run none, and so acknowledge nothing.
	ackScript = `document.forms[0].submit()`
)

type ackPage struct {
	Title, Text string
	Ask         bool
	Style       template.CSS
	Script      template.JS
}

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// routeAckLinks serves the links. They are no part of the API: what calls them is
// a person's browser, and what they answer is a page.
func (a *API) routeAckLinks() {
	page := template.Must(template.New("ack").Parse(ackHTML))
	a.mux.HandleFunc("GET /a/{token}", a.ackLink(page, func(_ context.Context, r *http.Request, _ uuid.UUID) (ackPage, error) {
		p := ackPage{Title: "Acknowledge", Text: "Confirm that you have seen this notification.", Ask: true, Script: ackScript}
		if r.Header.Get("Sec-Purpose") != "" || r.Header.Get("Purpose") != "" { // a browser that only looks ahead
			p.Script = ""
		}
		return p, nil
	}))
	a.mux.HandleFunc("POST /a/{token}", a.ackLink(page, func(ctx context.Context, _ *http.Request, id uuid.UUID) (ackPage, error) {
		project, err := a.ackLinks.ProjectOf(ctx, id)
		if err != nil {
			return ackPage{}, err
		}
		done, err := a.store.Acknowledge(ctx, project, id, a.now())
		if err != nil {
			return ackPage{}, err
		}
		return ackPage{Title: "Acknowledged", Text: "Noted at " + done.At.UTC().Format("15:04:05 UTC on 2 January 2006") + ". You can close this page."}, nil
	}))
}

// ackLink checks a link and shows the page that do answers with.
func (a *API) ackLink(page *template.Template, do func(context.Context, *http.Request, uuid.UUID) (ackPage, error)) http.HandlerFunc {
	policy := "default-src 'none'; style-src " + hashOf(ackStyle) + "; script-src " + hashOf(ackScript) +
		"; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		show := func(status int, p ackPage) {
			h := w.Header()
			h.Set("Content-Type", "text/html; charset=utf-8")
			h.Set("Content-Security-Policy", policy)
			h.Set("Referrer-Policy", "no-referrer") // the link itself is what opens it
			h.Set("Cache-Control", "no-store")
			p.Style = ackStyle
			w.WriteHeader(status)
			if err := page.Execute(w, p); err != nil {
				a.log.DebugContext(ctx, "page not sent", slog.Any("error", err))
			}
		}
		if after := a.limitLink(r); after != "" {
			w.Header().Set("Retry-After", after)
			show(http.StatusTooManyRequests, ackPage{Title: "Too many requests", Text: "Please try again in " + after + " s."})
			return
		}
		if a.ackLinks == nil {
			a.unmatched(w, r)
			return
		}
		id, err := a.ackLinks.Acknowledged(ctx, r.PathValue("token"))
		if err == nil {
			var p ackPage
			if p, err = do(ctx, r, id); err == nil {
				show(http.StatusOK, p)
				return
			}
		}
		if errors.Is(err, links.ErrInvalid) || errors.Is(err, store.ErrNotFound) {
			show(http.StatusNotFound, ackPage{Title: "Not found", Text: "This link is not valid, or what it was for is no longer kept."})
			return
		}
		a.log.WarnContext(ctx, "acknowledgement by link not noted", slog.Any("error", err))
		w.Header().Set("Retry-After", "5")
		show(http.StatusServiceUnavailable, ackPage{Title: "Please try again", Text: "Your acknowledgement could not be noted just now."})
	}
}

// limitLink takes a token of the address that a request without a key came from.
// It returns in how many seconds to come back, empty where there was one.
func (a *API) limitLink(r *http.Request) string {
	if a.limits == nil {
		return ""
	}
	d := a.limits.Addresses.Take(r.Context(), addressKey(clientAddress(r, a.limits.TrustedProxies)), a.limits.Address, 1)
	if d.OK {
		return ""
	}
	a.limits.refused(unauthenticated, nil, 1)
	return retryAfter(d)
}
