package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/panics"
)

const requestIDHeader = "X-Request-Id"

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	id := requestID(r)
	h := w.Header()
	h.Set(requestIDHeader, id)
	h.Set("X-Content-Type-Options", "nosniff")
	if strings.HasPrefix(r.URL.Path, apiPrefix) {
		h.Set("Cache-Control", "no-store")
	}
	r = r.WithContext(context.WithValue(r.Context(), requestIDContext, id))
	rec := &recorder{ResponseWriter: w}
	defer func() {
		if v := recover(); v != nil {
			a.panicked(rec, r, id, v)
		}
		if a.observe != nil {
			a.observe(r.Pattern, r.Method, rec.status, time.Since(start))
		}
		if a.log.Enabled(r.Context(), slog.LevelDebug) {
			// The pattern, not the path: a query may hold an address.
			a.log.DebugContext(r.Context(), "request", slog.String("request_id", id), slog.String("method", r.Method),
				slog.String("route", r.Pattern), slog.Int("status", rec.status), slog.Duration("duration", time.Since(start)))
		}
	}()
	if crooked(r.URL) {
		nothingHere().write(rec)
		return
	}
	a.mux.ServeHTTP(rec, r)
}

// crooked reports whether a path of the API is one that the mux would answer with a
// redirect to a cleaner one, as where an id is missing between two slashes. Whoever
// follows it with a POST would do something else than was asked for.
func crooked(u *url.URL) bool {
	p := u.EscapedPath() // which is what the mux goes by
	clean := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean != p && (strings.HasPrefix(p, apiPrefix) || strings.HasPrefix(clean, apiPrefix))
}

const apiPrefix = "/v1/"

// panicked answers for a handler that panicked, if it is not too late for that.
func (a *API) panicked(rec *recorder, r *http.Request, id string, v any) {
	if v == http.ErrAbortHandler { //nolint:errorlint // the sentinel itself is what is thrown
		panic(v)
	}
	a.guard.Caught(r.Context(), panics.Request, "answer", v, slog.String("request_id", id), slog.String("route", r.Pattern))
	if rec.status != 0 {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	newProblem(http.StatusInternalServerError, CodeInternal, "The service made a mistake.").write(rec)
}

// requestID is the caller's own id for the request, if it is 1 to 64 letters,
// digits and "-_.", else a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get(requestIDHeader)
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
	}
	if id == "" || len(id) > 64 || strings.ContainsFunc(id, func(c rune) bool { return !plain(c) }) {
		return uuid.NewString()
	}
	return id
}

// unmatched answers what no route is for: 405 where another method would be, as
// the mux does, else 404.
func (a *API) unmatched(w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, method := range []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	} {
		other := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := a.mux.Handler(other); pattern != "/" && pattern != "" {
			allow = append(allow, method)
		}
	}
	if len(allow) == 0 || slices.Contains(allow, r.Method) {
		nothingHere().write(w)
		return
	}
	newProblem(http.StatusMethodNotAllowed, CodeMethodNotAllowed, "This path has other methods, see Allow.").
		with("Allow", strings.Join(allow, ", ")).write(w)
}

func nothingHere() *Problem {
	return newProblem(http.StatusNotFound, CodeNotFound, "There is nothing at this path.")
}

// recorder notes the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets [http.ResponseController] reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Limits of a server. Zero fields take their defaults.
type Limits struct {
	ReadHeader time.Duration // for the request's header; default 5 s
	Read       time.Duration // for header and body; default 30 s
	Write      time.Duration // from the end of the header to the end of the answer; default 60 s
	Idle       time.Duration // between requests of a connection; default 2 min
	MaxHeader  int           // bytes of a request's header; default 32 KiB
}

// NewServer returns a server for h with limits that a slow or hostile caller
// cannot stretch. A handler that streams sets its own write deadlines with
// [http.ResponseController].
func NewServer(h http.Handler, l Limits, log *slog.Logger) *http.Server {
	or := func(d, def time.Duration) time.Duration {
		if d > 0 {
			return d
		}
		return def
	}
	if l.MaxHeader <= 0 {
		l.MaxHeader = 32 << 10
	}
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: or(l.ReadHeader, 5*time.Second),
		ReadTimeout:       or(l.Read, 30*time.Second),
		WriteTimeout:      or(l.Write, time.Minute),
		IdleTimeout:       or(l.Idle, 2*time.Minute),
		MaxHeaderBytes:    l.MaxHeader,
	}
	if log != nil {
		// What the server logs is the noise of broken connections.
		s.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	}
	return s
}

// contextKey is the type of this package's keys in contexts.
type contextKey int

const (
	apiKeyContext contextKey = iota
	bodyContext
	idempotencyContext
	verboseContext
	requestIDContext
)
