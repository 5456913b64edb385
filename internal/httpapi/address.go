package httpapi

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// clientAddress is where a request came from: the peer, or where that is a
// trusted proxy, the last address in X-Forwarded-For that is none. It is the zero
// Addr for a peer without an address, such as that of a Unix socket.
//
// The header grows at its end, so what stands before the first address that
// nobody vouches for may be made up.
func clientAddress(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap()
	lines := r.Header.Values("X-Forwarded-For")
	for _, line := range slices.Backward(lines) {
		for rest, more := line, true; more; {
			if !isTrusted(addr, trusted) {
				return addr
			}
			var last string
			if i := strings.LastIndexByte(rest, ','); i >= 0 {
				rest, last = rest[:i], rest[i+1:]
			} else {
				last, more = rest, false
			}
			next, ok := forwarded(strings.TrimSpace(last))
			if !ok {
				return addr
			}
			addr = next
		}
	}
	return addr
}

// forwarded reads an address that some proxies write with a port.
func forwarded(s string) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return addr.Unmap(), true
	}
	withPort, err := netip.ParseAddrPort(s)
	return withPort.Addr().Unmap(), err == nil
}

func isTrusted(addr netip.Addr, trusted []netip.Prefix) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(addr.WithZone("")) })
}

// addressKey is what addresses that one caller can have in common count as: the
// IPv4 address, or the /64 of IPv6, which is what one host gets (RFC 4291,
// section 2.5.4).
func addressKey(addr netip.Addr) string {
	if !addr.Is6() {
		return addr.String()
	}
	prefix, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return addr.String()
	}
	return prefix.String()
}

// maxGood bounds the secrets that are remembered, at some 30 bytes each.
const maxGood = 50_000

// goodSecrets remembers which Authorization fields were good when they were last
// looked up, by a hash that nobody outside can aim at.
type goodSecrets struct {
	seed   maphash.Seed
	mu     sync.RWMutex
	hashes map[uint64]struct{}
}

func newGoodSecrets() *goodSecrets {
	return &goodSecrets{seed: maphash.MakeSeed(), hashes: map[uint64]struct{}{}}
}

func (g *goodSecrets) has(authorization string) bool {
	if authorization == "" {
		return false
	}
	hash := maphash.String(g.seed, authorization)
	g.mu.RLock()
	defer g.mu.RUnlock()
	_, ok := g.hashes[hash]
	return ok
}

// note notes what came of a look-up.
func (g *goodSecrets) note(authorization string, good bool) {
	hash := maphash.String(g.seed, authorization)
	g.mu.RLock()
	_, known := g.hashes[hash]
	g.mu.RUnlock()
	if known == good {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !good {
		delete(g.hashes, hash)
		return
	}
	if len(g.hashes) >= maxGood {
		clear(g.hashes) // each of them costs its address one token more
	}
	g.hashes[hash] = struct{}{}
}
