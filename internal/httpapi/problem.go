package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// The codes of a [Problem]. They are part of the API; those of its errors are
// the notify.Code constants.
const (
	CodeBadRequest       = "bad_request"              // 400: not HTTP or JSON that can be read
	CodeUnauthorized     = "unauthorized"             // 401: no key, or none that is live
	CodeForbidden        = "forbidden"                // 403: the key lacks the scope
	CodeNotFound         = "not_found"                // 404: no such thing in the key's project
	CodeMethodNotAllowed = "method_not_allowed"       // 405
	CodeNotAcceptable    = "not_acceptable"           // 406: answers are JSON
	CodeTimeout          = "request_timeout"          // 408: the body took too long
	CodeCursorExpired    = "cursor_expired"           // 410: events after the cursor have been deleted
	CodeBatchRunning     = "batch_running"            // 409: another request runs this batch
	CodeDuplicateRow     = "duplicate_row"            // 409: the same as an earlier row of the batch
	CodeKeyEnded         = "key_ended"                // 409: the API key is revoked or has expired
	CodeTooManyWebhooks  = "too_many_webhooks"        // 409: the project has as many as it may have
	CodeTooLarge         = "body_too_large"           // 413
	CodeMediaType        = "unsupported_media_type"   // 415: bodies are JSON, not compressed
	CodeInvalid          = "invalid_request"          // 422: see errors
	CodeKeyReused        = "idempotency_key_mismatch" // 422: the Idempotency-Key came with another body before
	CodeTooManyStreams   = "too_many_streams"         // 429: of one key
	CodeRateLimited      = "rate_limited"             // 429: of one key or, without one, of one address
	CodeBatchOverBurst   = "batch_over_burst"         // 413: more rows than the key's limit ever allows at once
	CodeInternal         = "internal"                 // 500
	CodeUnavailable      = "unavailable"              // 503: worth another try, see Retry-After
)

const problemType = "application/problem+json"

// Problem is an error document of RFC 9457. It never holds what the caller sent.
type Problem struct { //nolint:errname // RFC 9457 calls it a problem
	Type   string        `json:"type" format:"uri-reference" example:"about:blank" doc:"Always about:blank; tell problems apart by code."`
	Title  string        `json:"title" example:"Unprocessable Entity" doc:"The phrase of the HTTP status."`
	Status int           `json:"status" example:"422" doc:"The HTTP status."`
	Code   string        `json:"code" example:"invalid_request" doc:"The problem's name. It does not change between versions."`
	Detail string        `json:"detail,omitzero" example:"The request has 1 problem, see errors." doc:"For people to read, not for programs to parse."`
	Errors []ErrorDetail `json:"errors,omitempty" doc:"What exactly is wrong with the request, all of it at once where it could be decoded."`

	header http.Header
}

// ErrorDetail is one thing that is wrong with a request.
type ErrorDetail struct {
	Pointer   string `json:"pointer" example:"/to/sms" doc:"JSON pointer (RFC 6901) into the body."`
	Parameter string `json:"parameter,omitzero" example:"query.limit" doc:"Instead of a pointer: the place and name of a parameter or header."`
	Code      string `json:"code" example:"format" doc:"The kind of fault. It does not change between versions."`
	Detail    string `json:"detail" example:"must be a phone number in E.164 form: a plus sign and 7 to 15 digits, the first not 0" doc:"What is allowed."`
}

// Error implements error.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header { return p.header }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return problemType }

func newProblem(status int, code, detail string, errs ...ErrorDetail) *Problem {
	return &Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail, Errors: errs,
	}
}

// with adds a header to the answer.
func (p *Problem) with(name, value string) *Problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(name, value)
	return p
}

// write sends the problem where huma is not in charge.
func (p *Problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{"type":"about:blank","status":500,"code":"internal"}`)
	}
	h := w.Header()
	maps.Copy(h, p.header)
	h.Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) //nolint:gosec // nothing of the request is in it; a caller who has gone does not miss it
}

// parameterProblem is a 422 about one parameter, such as "query.limit".
func parameterProblem(parameter, code, detail string) *Problem {
	return invalid([]ErrorDetail{{Parameter: parameter, Code: code, Detail: detail}})
}

func invalid(errs []ErrorDetail) *Problem {
	detail := "The request has problems, see errors."
	if len(errs) == 1 {
		detail = "The request has 1 problem, see errors."
	}
	return newProblem(http.StatusUnprocessableEntity, CodeInvalid, detail, errs...)
}

// bodyProblem is a 400 for a body that is no JSON, else a 422.
func bodyProblem(problems []notify.Problem) *Problem {
	errs := make([]ErrorDetail, len(problems))
	for i, p := range problems {
		errs[i] = ErrorDetail{Pointer: p.Pointer, Code: p.Code, Detail: p.Detail}
	}
	if len(problems) > 0 && problems[0].Malformed() {
		return newProblem(http.StatusBadRequest, CodeBadRequest, "The body is not JSON that can be read, see errors.", errs...)
	}
	return invalid(errs)
}

// storeProblem turns an error of the store into an answer. What the caller can do
// nothing about is logged.
func (a *API) storeProblem(ctx context.Context, err error) *Problem {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return newProblem(http.StatusNotFound, CodeNotFound, "There is no such thing in the project of this key.")
	case errors.Is(err, store.ErrIdempotencyMismatch):
		p := parameterProblem("header."+keyHeader, notify.CodeConflict, "was used before, with another body")
		p.Code, p.Detail = CodeKeyReused, "The Idempotency-Key was used before, with another body."
		return p
	case store.Classify(err) == store.BadRow:
		a.fault(ctx, slog.LevelWarn, "database refused a request", err)
		return newProblem(http.StatusUnprocessableEntity, CodeInvalid, "The database cannot hold what was sent.")
	case ctx.Err() != nil, store.Classify(err) == store.Transient, store.Classify(err) == store.Blocked:
		if !errors.Is(ctx.Err(), context.Canceled) { // a caller who has gone is no fault
			a.fault(ctx, slog.LevelWarn, "database is not available", err)
		}
		return newProblem(http.StatusServiceUnavailable, CodeUnavailable, "The service cannot do this now. Try again.").with("Retry-After", "1")
	}
	return a.internal(ctx, err)
}

// internal is the answer to a fault of our own, whose text stays here.
func (a *API) internal(ctx context.Context, err error) *Problem {
	a.fault(ctx, slog.LevelError, "request failed", err)
	return newProblem(http.StatusInternalServerError, CodeInternal, "The service made a mistake.")
}

func (a *API) fault(ctx context.Context, level slog.Level, message string, err error) {
	id, _ := ctx.Value(requestIDContext).(string)
	a.log.LogAttrs(ctx, level, message, slog.String("request_id", id), slog.Any("error", err)) //nolint:sloglint // the callers' messages are static
}

// setUpHuma replaces huma's error documents, which repeat what was sent, by ours.
// Its hooks are variables of the package, hence once for all.
var setUpHuma = sync.OnceFunc(func() {
	huma.NewError = humaProblem
	huma.NewErrorWithContext = func(_ huma.Context, status int, msg string, errs ...error) huma.StatusError {
		return humaProblem(status, msg, errs...)
	}
	huma.DefaultArrayNullable = false // our arrays are never null
})

// humaProblem translates what huma found. Of its texts only those about
// parameters are used, which do not hold the value.
func humaProblem(status int, _ string, errs ...error) huma.StatusError {
	var details []ErrorDetail
	for _, err := range errs {
		if d, ok := errors.AsType[*huma.ErrorDetail](err); ok {
			if place, _, ok := strings.Cut(d.Location, "."); ok && place != "body" {
				details = append(details, ErrorDetail{Parameter: d.Location, Code: notify.CodeFormat, Detail: d.Message})
			}
		}
	}
	if status == http.StatusUnprocessableEntity {
		return invalid(details)
	}
	if status >= http.StatusInternalServerError {
		return newProblem(status, CodeInternal, "The service made a mistake.")
	}
	return newProblem(status, CodeBadRequest, "The request cannot be read.", details...)
}
