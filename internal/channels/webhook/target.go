package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/idna"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const (
	urlField     = "/to/webhook/url"
	headersField = "/to/webhook/headers"
	maxURL       = 2048
	maxScope     = 64
)

// endpoint is where a URL leads.
type endpoint struct {
	host string // in ASCII and lower case, without a dot at its end
	port uint16
	addr string // what is dialed: host:port
	tls  bool

	authority string // the host as the URL has it, in ASCII, with the port that is named
	path      string // with the query
}

// parseEndpoint reads a URL's shape; whether it may be called is another question.
func parseEndpoint(raw string) (endpoint, *channels.CheckError) {
	bad := func(reason string) (endpoint, *channels.CheckError) {
		return endpoint{}, &channels.CheckError{Field: urlField, Reason: reason}
	}
	if len(raw) > maxURL {
		return bad(fmt.Sprintf("must be at most %d bytes", maxURL))
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return bad("must be an absolute http or https URL")
	}
	if u.User != nil {
		return bad("must have no user name and password; use the header Authorization")
	}
	if u.Fragment != "" || strings.HasSuffix(raw, "#") {
		return bad("must have no fragment")
	}
	e := endpoint{port: 80, path: u.RequestURI()}
	if strings.Contains(e.path, " ") {
		return bad("must have %20 for a space")
	}
	if u.Scheme == "https" {
		e.port, e.tls = 443, true
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return bad("must have a port from 1 to 65535")
		}
		e.port = uint16(n)
	}
	host, ok := asciiHost(u.Hostname())
	if !ok {
		return bad("must name a host by its full name or address")
	}
	e.host = strings.TrimSuffix(host, ".")
	port := strconv.Itoa(int(e.port))
	e.addr = net.JoinHostPort(host, port)
	name, _, _ := strings.Cut(host, "%") // an address's zone means nothing to the other side
	if e.authority = net.JoinHostPort(name, port); u.Port() == "" {
		e.authority = strings.TrimSuffix(e.authority, ":"+port)
	}
	return e, nil
}

// asciiHost is the host as net/http will look it up. Letters and digits beyond
// ASCII are folded, so that what only looks like an address is found to be one.
// Numbers that some resolvers take for an address and others do not, such as
// 127.1, are refused.
func asciiHost(host string) (string, bool) {
	if strings.IndexFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
		folded, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return "", false
		}
		host = folded
	}
	host = strings.ToLower(host)
	if _, err := netip.ParseAddr(host); err == nil {
		return host, true
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	for _, l := range labels {
		if l == "" || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", false
		}
	}
	last := labels[len(labels)-1]
	numeric := strings.HasPrefix(last, "0x") || strings.Trim(last, "0123456789") == ""
	return host, !numeric
}

// scope names the endpoint's host for breaker and gate: "host:" and the name,
// with its port where that is neither 80 nor 443, or a hash of both where they are
// too long. A host alone is no secret: the secret of a URL is in its path.
func (e endpoint) scope() string {
	const prefix = "host:"
	name := e.host
	if e.port != 80 && e.port != 443 {
		name += ":" + strconv.Itoa(int(e.port))
	}
	if len(prefix)+len(name) <= maxScope {
		return prefix + name
	}
	sum := sha256.Sum256([]byte(name))
	return prefix + hex.EncodeToString(sum[:16])
}

// permits says whether the guard would let e through as far as that can be known
// without asking the name service, so that most refusals are told when a
// notification is accepted. The guard has the last word when it dials.
func (g *guard) permits(e endpoint) *channels.CheckError {
	if g.rules.hosts[e.addr] {
		return nil
	}
	if !slices.Contains(g.rules.ports, e.port) {
		return &channels.CheckError{Field: urlField, Reason: "must have a port that is allowed here: " + list(g.rules.ports)}
	}
	if ip, err := netip.ParseAddr(e.host); err == nil && g.guardian.SafeAddr(ip) != nil {
		return &channels.CheckError{Field: urlField, Reason: "must not be an address that is not public"}
	}
	return nil
}

func list(ports []uint16) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ports), " ", ", "), "[]")
}

// reserved are headers that are the transport's or ours, and those that metadata
// services of clouds take for a proof of trust.
var reserved = map[string]bool{
	"host": true, "content-length": true, "transfer-encoding": true, "connection": true, "keep-alive": true,
	"te": true, "trailer": true, "upgrade": true, "expect": true, "http2-settings": true,
	"metadata": true, "metadata-flavor": true, "traceparent": true, "tracestate": true,
}

// checkHeaders checks the target's own headers. Authorization is among those
// allowed, for it is what endpoints ask for.
func checkHeaders(headers map[string]string) *channels.CheckError {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value, lower := headers[name], strings.ToLower(name)
		field := headersField + "/" + strings.ReplaceAll(name, "~", "~0") // as JSON pointers have it
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return &channels.CheckError{Field: headersField, Reason: "each name must be a header's name"}
		case reserved[lower], strings.HasPrefix(lower, "webhook-"), strings.HasPrefix(lower, "proxy-"),
			strings.HasPrefix(lower, "x-aws-ec2-metadata-"):
			return &channels.CheckError{Field: field, Reason: "is not for callers to set"}
		case !validHeaderValue(value):
			return &channels.CheckError{Field: field, Reason: "must be printable ASCII"}
		}
	}
	return nil
}

// validHeaderValue reports whether s is made of printable ASCII, space and tab.
func validHeaderValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '\t' && (c < ' ' || c > '~') {
			return false
		}
	}
	return true
}

// setHeaders puts the target's headers into h.
func setHeaders(h http.Header, w *notify.WebhookTarget) {
	for name, value := range w.Headers {
		h.Set(name, value)
	}
}
