package httpapi

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"net"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// readBody reads a JSON body of at most so many bytes whole. Without a Content-Type it is taken for JSON.
//
// Huma could do it, but would answer 500 when a caller hangs up, and decode
// twice.
func (a *API) readBody(ctx huma.Context, most int64) ([]byte, *Problem) {
	r, w := humago.Unwrap(ctx)
	if r.ContentLength == 0 {
		return nil, nil // whose Content-Type says nothing
	}
	if !isJSON(r.Header) {
		return nil, newProblem(http.StatusUnsupportedMediaType, CodeMediaType, "The body must be application/json in UTF-8, not compressed.").
			with("Accept", "application/json")
	}
	tooLarge := newProblem(http.StatusRequestEntityTooLarge, CodeTooLarge, "The body is too large.")
	if r.ContentLength > most {
		return nil, tooLarge.with("Connection", "close") // the rest stays unread
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, most))
	var large *http.MaxBytesError
	var network net.Error
	switch {
	case err == nil:
		return buf.Bytes(), nil
	case errors.As(err, &large):
		return nil, tooLarge
	case errors.As(err, &network) && network.Timeout():
		return nil, newProblem(http.StatusRequestTimeout, CodeTimeout, "The body took too long to arrive.")
	}
	return nil, newProblem(http.StatusBadRequest, CodeBadRequest, "The body broke off or was not framed as HTTP demands.")
}

// withBody reads the body before the operation, which finds it with bodyOf.
func (a *API) withBody(ctx huma.Context, next func(huma.Context)) {
	body, p := a.readBody(ctx, a.maxBody)
	if p != nil {
		refuse(ctx, p)
		return
	}
	next(huma.WithValue(ctx, bodyContext, body))
}

// bodyOf returns the body that withBody read.
func bodyOf(ctx context.Context) []byte {
	body, _ := ctx.Value(bodyContext).([]byte)
	return body
}

// decodeBody decodes the body that withBody read, strictly.
func decodeBody(ctx context.Context, v any) error {
	if fault := notify.Strict(bodyOf(ctx), v); fault != nil {
		return bodyProblem([]notify.Problem{*fault})
	}
	return nil
}

// isJSON reports whether a request's body is JSON by its header.
func isJSON(h http.Header) bool {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return false
	}
	contentType := h.Get("Content-Type")
	if contentType == "" {
		return true
	}
	media, params, err := mime.ParseMediaType(contentType)
	charset := params["charset"]
	return err == nil && media == "application/json" && (charset == "" || strings.EqualFold(charset, "utf-8"))
}
