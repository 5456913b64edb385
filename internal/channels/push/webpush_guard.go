package push

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"code.dny.dev/ssrf"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

// azureHost is Azure's service of the host machine, on an address in public space
// that no list of private ranges has.
var azureHost = netip.MustParsePrefix("168.63.129.16/32")

// hostPorts is a set of "host:port".
type hostPorts map[string]bool

func (h hostPorts) add(hp string)      { h[strings.ToLower(hp)] = true }
func (h hostPorts) has(hp string) bool { return h[strings.ToLower(hp)] }

// hostPort is what u is dialed by.
func hostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// newGuardedClient returns a client for URLs that users name. It connects to
// public addresses on port 443 and to allow; the address is checked when it is
// dialed, after every name has been resolved, so that no name can change its mind.
func newGuardedClient(allow hostPorts) *http.Client {
	open := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	guarded := open
	guarded.Control = ssrf.New(ssrf.WithPorts(443), ssrf.WithDeniedV4Prefixes(azureHost)).Safe
	client := channels.NewHTTPClient(perHost)
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if allow.has(addr) {
			return open.DialContext(ctx, network, addr)
		}
		return guarded.DialContext(ctx, network, addr)
	}
	return client
}

// guardRefused reports whether err is the guard's.
func guardRefused(err error) bool {
	return errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedPort) ||
		errors.Is(err, ssrf.ErrProhibitedNetwork) || errors.Is(err, ssrf.ErrInvalidHostPort)
}
