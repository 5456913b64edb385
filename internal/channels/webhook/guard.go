package webhook

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"code.dny.dev/ssrf"

	"github.com/notification-dispatcher/dispatcher/internal/channels/h1"
)

// How many idle connections are kept, to one endpoint and in all, and for how long.
// There are as many as calls were under way at once, up to that.
const (
	idlePerHost = 256
	idleInAll   = 1024
	idleFor     = 90 * time.Second
)

// azureHost is where Azure's host machine answers its guests: an address in public
// space that no list of special ones has.
var azureHost = netip.MustParsePrefix("168.63.129.16/32")

// rules say what may be called.
type rules struct {
	ports    []uint16
	hosts    map[string]bool // "host:port" that are exempt
	prefixes []netip.Prefix  // addresses that are taken for public ones
}

// guard keeps calls to URLs of strangers' choice away from the service's own
// network (server-side request forgery).
type guard struct {
	rules    rules
	guardian *ssrf.Guardian
	open     *net.Dialer // for what is exempt
	guarded  *net.Dialer
}

func newGuard(r rules) *guard {
	var v4, v6 []netip.Prefix
	for _, p := range r.prefixes {
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	g := &guard{rules: r, guardian: ssrf.New(
		ssrf.WithPorts(r.ports...),
		ssrf.WithDeniedV4Prefixes(azureHost),
		ssrf.WithAllowedV4Prefixes(v4...),
		ssrf.WithAllowedV6Prefixes(v6...),
	)}
	g.open = &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	guarded := *g.open
	guarded.Control = g.guardian.Safe
	g.guarded = &guarded
	return g
}

// dial checks the address when the socket is about to connect, with the name
// resolved: a name that was checked earlier may since point elsewhere.
func (g *guard) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if g.rules.hosts[strings.ToLower(addr)] {
		return g.open.DialContext(ctx, network, addr)
	}
	return g.guarded.DialContext(ctx, network, addr)
}

// client returns the client for guarded calls.
func (g *guard) client() *h1.Client {
	return h1.New(h1.Config{Dial: g.dial, IdlePerHost: idlePerHost, Idle: idleInAll, IdleFor: idleFor})
}

// refused reports whether err is the guard's.
func refused(err error) bool {
	return errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedPort) ||
		errors.Is(err, ssrf.ErrProhibitedNetwork) || errors.Is(err, ssrf.ErrInvalidHostPort)
}
