package httpapi

import (
	"net/http"
	"net/netip"
	"strconv"
	"testing"
)

func TestClientAddress(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	tests := []struct {
		name      string
		peer      string
		forwarded []string
		want      string
	}{
		{"the peer", "192.0.2.1:80", nil, "192.0.2.1"},
		{"the peer in IPv6", "[2001:db8::1%eth0]:80", nil, "2001:db8::/64"},
		{"an IPv4 address in IPv6", "[::ffff:192.0.2.1]:80", nil, "192.0.2.1"},
		{"who is not trusted is not believed", "192.0.2.1:80", []string{"198.51.100.1"}, "192.0.2.1"},
		{"a trusted proxy is", "10.0.0.1:80", []string{"198.51.100.1"}, "198.51.100.1"},
		{"a trusted proxy by a mapped address", "[::ffff:10.0.0.1]:80", []string{"198.51.100.1"}, "198.51.100.1"},
		{"the last address that nobody vouches for", "10.0.0.1:80", []string{"203.0.113.1, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"},
		{"over several fields", "10.0.0.1:80", []string{"203.0.113.1", "198.51.100.1,fd00::1", "10.0.0.2"}, "198.51.100.1"},
		{"with ports", "10.0.0.1:80", []string{"[2001:db8:0:1::2]:443, 10.0.0.2:443"}, "2001:db8:0:1::/64"},
		{"in brackets", "10.0.0.1:80", []string{"[2001:db8:0:1::2]"}, "2001:db8:0:1::/64"},
		{"proxies all the way", "10.0.0.1:80", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"nothing forwarded", "10.0.0.1:80", nil, "10.0.0.1"},
		{"up to what is no address", "10.0.0.1:80", []string{"198.51.100.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"an empty field", "10.0.0.1:80", []string{""}, "10.0.0.1"},
		{"a Unix socket", "@", []string{"198.51.100.1"}, "invalid IP"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := &http.Request{RemoteAddr: tt.peer, Header: http.Header{"X-Forwarded-For": tt.forwarded}}
			if got := addressKey(clientAddress(r, trusted)); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func FuzzClientAddress(f *testing.F) {
	f.Add("198.51.100.1, 10.0.0.2")
	f.Add("[2001:db8::1]:443,,")
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, forwarded string) {
		header := http.Header{"X-Forwarded-For": {forwarded}}
		if got := clientAddress(&http.Request{RemoteAddr: "10.0.0.1:80", Header: header}, trusted); !got.IsValid() {
			t.Errorf("no address for %q", forwarded)
		}
		if got := clientAddress(&http.Request{RemoteAddr: "192.0.2.1:80", Header: header}, trusted); got.String() != "192.0.2.1" {
			t.Errorf("%v is believed for %q", got, forwarded)
		}
	})
}

func TestGoodSecretsAreBoundedAndForgottenWhenTheyFail(t *testing.T) {
	t.Parallel()
	g := newGoodSecrets()
	for i := range maxGood + 10 {
		g.note("Bearer "+strconv.Itoa(i), true)
	}
	if n := len(g.hashes); n > maxGood {
		t.Errorf("%d are remembered, at most %d may be", n, maxGood)
	}
	last := "Bearer " + strconv.Itoa(maxGood+9)
	if !g.has(last) || g.has("") || g.has("Bearer x") {
		t.Error("another is remembered than the last")
	}
	if g.note(last, false); g.has(last) {
		t.Error("it is remembered after it failed")
	}
}
