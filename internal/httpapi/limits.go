package httpapi

import (
	"context"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// unauthenticated is the class of requests without a key that is known to be
// good, beside the classes of keys.
const unauthenticated store.RouteClass = "unauthenticated"

// RateLimits are what callers may ask for.
type RateLimits struct {
	// Keys enforces the limits of API keys over all nodes.
	Keys *resilience.Limiter
	// Classes are the limits of each key that has none of its own, for every class.
	Classes map[store.RouteClass]resilience.Limit
	// Addresses enforces that of an address at this node. It has no source, so what
	// nobody has authenticated reaches no database.
	Addresses *resilience.Limiter
	Address   resilience.Limit
	// TrustedProxies are those whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// Refused is told of requests that were refused: the class, and the key or nil.
	// A row of a batch counts as one. Nil for nobody.
	Refused func(class store.RouteClass, key *store.APIKey, count int)
}

// limits enforces [RateLimits].
type limits struct {
	RateLimits
	good *goodSecrets
}

func newLimits(l *RateLimits) *limits {
	if l == nil {
		return nil
	}
	return &limits{RateLimits: *l, good: newGoodSecrets()}
}

func (l *limits) refused(class store.RouteClass, key *store.APIKey, count int) {
	if l.Refused != nil && count > 0 {
		l.Refused(class, key, count)
	}
}

// classOf is the class of the routes that need a scope.
func classOf(scope string) store.RouteClass {
	switch scope {
	case ScopeRead:
		return store.ClassRead
	case ScopeAdmin:
		return store.ClassAdmin
	}
	return store.ClassWrite
}

// limitOf is what applies to a key.
func (l *limits) limitOf(key *store.APIKey, class store.RouteClass) resilience.Limit {
	if own, ok := key.Limits[class]; ok {
		return own
	}
	return l.Classes[class]
}

// take takes tokens of a key.
func (l *limits) take(ctx context.Context, key *store.APIKey, class store.RouteClass, cost int) resilience.Decision {
	return l.Keys.Take(ctx, string(class)+"/"+key.ID.String(), l.limitOf(key, class), cost)
}

// limitAddress refuses a request of an address that sent too many without a key
// that was known to be good. Every such request costs a token before the key is
// looked up: were it charged only when the look-up fails, many at once could do
// theirs before the first is charged. A secret that was good of late costs none,
// so the good are not refused for the bad behind the same address.
func (a *API) limitAddress(ctx huma.Context) *Problem {
	if a.limits == nil || a.limits.good.has(ctx.Header("Authorization")) {
		return nil
	}
	r, _ := humago.Unwrap(ctx)
	d := a.limits.Addresses.Take(ctx.Context(), addressKey(clientAddress(r, a.limits.TrustedProxies)), a.limits.Address, 1)
	if d.OK {
		return nil
	}
	a.limits.refused(unauthenticated, nil, 1)
	return newProblem(http.StatusTooManyRequests, CodeRateLimited, "Too many requests from this address without an API key that is known to be good.").
		with("Retry-After", retryAfter(d))
}

// limitAuthenticated takes one token of a key, also of one that lacks the scope,
// and tells the caller how it stands. p is what authentication found wrong.
func (a *API) limitAuthenticated(ctx huma.Context, key *store.APIKey, scope string, p *Problem) *Problem {
	switch {
	case a.limits == nil:
		return nil
	case p != nil && p.Status == http.StatusUnauthorized:
		a.limits.good.note(ctx.Header("Authorization"), false)
		return nil
	case p != nil && p.Status != http.StatusForbidden: // nobody can say
		return nil
	}
	a.limits.good.note(ctx.Header("Authorization"), true)
	class := classOf(scope)
	d := a.limits.take(ctx.Context(), key, class, 1)
	_, w := humago.Unwrap(ctx)
	writeLimit(w.Header(), class, d)
	if d.OK {
		return nil
	}
	a.limits.refused(class, key, 1)
	return limited(d)
}

// limited is the answer to a request that is one too many.
func limited(d resilience.Decision) *Problem {
	after := retryAfter(d)
	return newProblem(http.StatusTooManyRequests, CodeRateLimited, "The limit of this API key is reached. Try again in "+after+" s.").
		with("Retry-After", after)
}

func retryAfter(d resilience.Decision) string { return strconv.Itoa(max(1, seconds(d.RetryAfter))) }

// seconds rounds up: who comes back then is not early.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// writeLimit writes how a limit stands, by draft-ietf-httpapi-ratelimit-headers
// and in the older fields that many clients read; there Reset is in seconds from
// now. A local decision is one node's alone and says nothing about the rest.
func writeLimit(h http.Header, class store.RouteClass, d resilience.Decision) {
	if d.Local {
		return
	}
	burst, remaining, reset := strconv.Itoa(d.Limit.Burst), strconv.Itoa(d.Remaining), strconv.Itoa(seconds(d.Reset))
	name := `"` + string(class) + `"`
	h.Set("X-RateLimit-Limit", burst)
	h.Set("X-RateLimit-Remaining", remaining)
	h.Set("X-RateLimit-Reset", reset)
	h.Set("RateLimit-Policy", name+";q="+burst+";w="+strconv.Itoa(seconds(d.Limit.Window())))
	h.Set("RateLimit", name+";r="+remaining+";t="+reset)
}
