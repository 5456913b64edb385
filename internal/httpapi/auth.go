package httpapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// The scopes of an API key.
const (
	ScopeSend  = "send"  // accept and stop notifications
	ScopeRead  = "read"  // see notifications and channels
	ScopeAdmin = "admin" // manage keys, operate channels, see the backlog of all projects
)

// bearer is the name of the security scheme.
const bearer = "bearer"

// needs is an operation's security: a key with the scope.
func needs(scope string) []map[string][]string {
	return []map[string][]string{{bearer: {scope}}}
}

// refuse answers with a problem in place of the operation.
func refuse(ctx huma.Context, p *Problem) {
	_, w := humago.Unwrap(ctx)
	p.write(w)
}

// authenticate lets a request through whose key has the operation's scope and is
// not over its limit.
func (a *API) authenticate(ctx huma.Context, next func(huma.Context)) {
	security := ctx.Operation().Security
	if len(security) == 0 {
		next(ctx)
		return
	}
	if p := a.limitAddress(ctx); p != nil {
		refuse(ctx, p)
		return
	}
	scope := security[0][bearer][0]
	key, p := a.authenticated(ctx.Context(), ctx.Header("Authorization"), scope)
	if limited := a.limitAuthenticated(ctx, &key, scope, p); limited != nil {
		p = limited
	}
	if p != nil {
		refuse(ctx, p)
		return
	}
	next(huma.WithValue(ctx, apiKeyContext, key))
}

// authenticated returns the live key of an Authorization header (RFC 6750), also
// where it lacks the scope, which is a 403.
func (a *API) authenticated(ctx context.Context, header, scope string) (store.APIKey, *Problem) {
	kind, secret, _ := strings.Cut(header, " ")
	secret = strings.TrimSpace(secret)
	if !strings.EqualFold(kind, "Bearer") || secret == "" || len(secret) > 256 {
		return store.APIKey{}, newProblem(http.StatusUnauthorized, CodeUnauthorized, "An API key is needed: Authorization: Bearer dsp_…").
			with("WWW-Authenticate", `Bearer realm="dispatcher"`)
	}
	key, err := a.keys.Authenticate(ctx, secret)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.APIKey{}, newProblem(http.StatusUnauthorized, CodeUnauthorized, "This API key is not known, or revoked, or expired.").
			with("WWW-Authenticate", `Bearer realm="dispatcher", error="invalid_token"`)
	case err != nil:
		return store.APIKey{}, a.storeProblem(ctx, err)
	case !slices.Contains(key.Scopes, scope):
		return key, newProblem(http.StatusForbidden, CodeForbidden, "This API key lacks the scope "+scope+".").
			with("WWW-Authenticate", `Bearer realm="dispatcher", error="insufficient_scope", scope="`+scope+`"`)
	}
	return key, nil
}

// keyOf returns the key that authenticate put there.
func keyOf(ctx context.Context) store.APIKey {
	key, _ := ctx.Value(apiKeyContext).(store.APIKey)
	return key
}

// acceptable refuses a request that wants an answer other than JSON, or a stream
// where there is none, before anything is done for it.
func (a *API) acceptable(ctx huma.Context, next func(huma.Context)) {
	r, _ := humago.Unwrap(ctx)
	if accept := r.Header.Values("Accept"); !acceptsJSON(accept) && !streamable(ctx.Operation(), accept) && !linesWanted(ctx.Operation(), accept) {
		refuse(ctx, newProblem(http.StatusNotAcceptable, CodeNotAcceptable, "Answers are application/json and application/problem+json."))
		return
	}
	next(ctx)
}

// acceptsJSON reports whether an Accept header (RFC 9110, section 12.5.1) has
// room for JSON.
func acceptsJSON(accept []string) bool {
	some := false
	for _, line := range accept {
		for part := range strings.SplitSeq(line, ",") {
			media, params, _ := strings.Cut(part, ";")
			media = strings.ToLower(strings.TrimSpace(media))
			if media == "" {
				continue
			}
			some = true
			switch media {
			case "*/*", "application/*", "application/json", problemType:
				if !refusing(params) {
					return true
				}
			}
		}
	}
	return !some
}

// refusing reports whether parameters of a media range have the weight 0.
func refusing(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(name, "q") {
			return strings.Trim(value, "0.") == ""
		}
	}
	return false
}

// queryKnown refuses parameters that the operation does not have, or has once
// only: a filter that is misspelt must not look like one that matched.
func (a *API) queryKnown(ctx huma.Context, next func(huma.Context)) {
	r, _ := humago.Unwrap(ctx)
	if r.URL.RawQuery == "" {
		next(ctx)
		return
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		refuse(ctx, newProblem(http.StatusBadRequest, CodeBadRequest, "The query cannot be read."))
		return
	}
	var errs []ErrorDetail
	for _, name := range slices.Sorted(maps.Keys(query)) {
		known := slices.ContainsFunc(ctx.Operation().Parameters, func(p *huma.Param) bool { return p.In == "query" && p.Name == name })
		switch {
		case !known:
			errs = append(errs, ErrorDetail{Parameter: unknownParameter(name), Code: notify.CodeUnknownMember, Detail: "is not a parameter here"})
		case len(query[name]) > 1:
			errs = append(errs, ErrorDetail{Parameter: "query." + name, Code: notify.CodeDuplicate, Detail: "must be there only once"})
		}
	}
	if len(errs) > 0 {
		refuse(ctx, invalid(errs))
		return
	}
	next(ctx)
}

// unknownParameter names a parameter that is not ours, unless its name could be
// an address that stands in the wrong place.
func unknownParameter(name string) string {
	letters := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
	if len(name) > 40 || strings.ContainsFunc(name, func(c rune) bool { return !letters(c) }) {
		return "query"
	}
	return "query." + name
}
