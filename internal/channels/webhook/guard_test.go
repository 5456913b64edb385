package webhook

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

func newProvider(t *testing.T, change func(*Config)) *Provider {
	t.Helper()
	cfg := Config{Secrets: []secret.Value{secret.New("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32)))}}
	if change != nil {
		change(&cfg)
	}
	p, err := New("webhook-main", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.CloseIdleConnections)
	return p
}

func to(url string) *channels.Message {
	return &channels.Message{
		Key:     uuid.MustParse("5f0e6c1e-7d52-5c0a-9d0e-4e6a3f1d2c3b"),
		To:      notify.Target{Webhook: &notify.WebhookTarget{URL: url}},
		Content: notify.Content{Title: "Deploy failed"},
	}
}

// special are addresses that no stranger may make the service call.
func special() []string {
	return []string{
		"127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
		"100.64.0.1", "100.100.100.200", "169.254.169.254", "169.254.170.2", "192.0.0.1", "192.0.2.1", "198.51.100.1",
		"203.0.113.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "168.63.129.16",
		"::", "::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%lo", "fec0::1", "ff02::1",
		"::ffff:127.0.0.1", "::ffff:8.8.8.8", "::7f00:1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001::1",
		"2001:db8::1", "3fff::1", "2606:4700:4700::1111%eth0",
	}
}

func TestGuardStopsWhatIsNotPublic(t *testing.T) {
	g := newProvider(t, nil).guard
	for _, ip := range special() {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			t.Fatal(err)
		}
		network := "tcp6"
		if addr.Is4() {
			network = "tcp4"
		}
		err = g.guarded.Control(network, netip.AddrPortFrom(addr, 443).String(), nil)
		if !refused(err) {
			t.Errorf("%s may be called", ip)
		}
	}
	for _, addr := range []string{"8.8.8.8:443", "8.8.8.8:80", "[2606:4700:4700::1111]:443", "192.0.1.1:443", "172.32.0.1:443", "11.0.0.1:443"} {
		network := "tcp4"
		if addr[0] == '[' {
			network = "tcp6"
		}
		if err := g.guarded.Control(network, addr, nil); err != nil {
			t.Errorf("%s may not be called: %v", addr, err)
		}
	}
	for _, addr := range []string{"8.8.8.8:22", "8.8.8.8:6379", "8.8.8.8:0", "[2606:4700:4700::1111]:8080"} {
		if err := g.guarded.Control("tcp4", addr, nil); !refused(err) {
			t.Errorf("%s may be called", addr)
		}
	}
}

func TestURLsThatAreRefusedWhenAccepted(t *testing.T) {
	p := newProvider(t, nil)
	urls := []string{
		"", "/relative", "example.com/hook", "ftp://example.com/", "file:///etc/passwd", "gopher://127.0.0.1:6379/_x", "javascript:alert(1)",
		"http:example.com", "http://", "https:///path", "http://user:pw@example.com/", "http://user@example.com/", "http://@example.com/",
		"http://example.com/#fragment", "http://example.com/#",
		"http://example.com:22/", "http://example.com:6379/", "http://example.com:0/", "http://example.com:65536/", "http://example.com:99999999999/",
		"http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/", "http://127.0.0.1./", "http://0/", "http://0x7f.1/",
		"http://①②⑦.0.0.1/", "http://127。0。0。1/", "http://１２７.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://[fe80::1%25lo]/", "http://[::1]/",
		"http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://168.63.129.16/metadata",
		"http://a..b/", "http://exa$mple.com/", "http://example.com/?a b", "http://%31%32%37.0.0.1/", "http://example.com\n.evil/", "http://exam ple.com/",
		"http://example.com/" + strings.Repeat("x", 2048),
	}
	for _, ip := range special() {
		urls = append(urls, "https://"+bracketed(ip)+"/hook")
	}
	for _, u := range urls {
		m := to(u)
		err := p.Check(m)
		if err == nil {
			t.Errorf("accepted %q", u)
			continue
		}
		if len(u) > 20 && strings.Contains(err.Error(), u) {
			t.Errorf("the error repeats the URL: %v", err)
		}
		if r := p.Send(t.Context(), m); r.Outcome != notify.RecipientRejected || r.Suppress {
			t.Errorf("%q: result %+v, want recipient_rejected", u, r)
		}
	}
	for _, u := range []string{
		"http://example.com", "https://example.com/a?b=c%20d", "https://EXAMPLE.com./x", "https://example.com:443/", "http://my_host.example.com/",
		"https://bücher.example/", "https://8.8.8.8/", "https://[2606:4700:4700::1111]/", "https://1.example.com/", "https://example.com:80/",
	} {
		if err := p.Check(to(u)); err != nil {
			t.Errorf("refused %q: %v", u, err)
		}
	}
}

func bracketed(ip string) string {
	if strings.Contains(ip, ":") {
		return "[" + strings.ReplaceAll(ip, "%", "%25") + "]"
	}
	return ip
}

// nameServer answers A queries for the names given, and that there is no other.
func nameServer(t *testing.T, names map[string][]string) *net.Resolver {
	t.Helper()
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe() // no packets, so that messages have their length before them
		go func() {
			defer server.Close() //nolint:errcheck // a pipe
			for serveName(server, names) == nil {
				continue
			}
		}()
		return client, nil
	}}
}

func serveName(c net.Conn, names map[string][]string) error {
	var size uint16
	if err := binary.Read(c, binary.BigEndian, &size); err != nil {
		return err
	}
	query := make([]byte, size)
	if _, err := io.ReadFull(c, query); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return err
	}
	q := m.Questions[0]
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, RCode: dnsmessage.RCodeNameError}
	m.Additionals = nil
	if ips, ok := names[strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))]; ok {
		m.RCode = dnsmessage.RCodeSuccess
		for _, ip := range ips {
			if q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr(ip).As4()},
				})
			}
		}
	}
	answer, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	return err
}

// TestNamesAreCheckedWhenDialed: the name passes when the notification is
// accepted; what it stands for is seen only by the dialer.
func TestNamesAreCheckedWhenDialed(t *testing.T) {
	var calls atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer srv.Close()
	port := netip.MustParseAddrPort(srv.Listener.Addr().String()).Port()

	for name, tt := range map[string]struct {
		ips  []string
		want notify.Outcome
	}{
		"private":     {[]string{"127.0.0.1"}, notify.RecipientRejected},
		"metadata":    {[]string{"169.254.169.254"}, notify.RecipientRejected},
		"all private": {[]string{"10.0.0.1", "127.0.0.1"}, notify.RecipientRejected},
		"no such":     {nil, notify.RecipientUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, func(c *Config) { c.AllowPorts = []int{int(port)} })
			names := map[string][]string{}
			if tt.ips != nil {
				names["hook.example.com"] = tt.ips
			}
			p.guard.guarded.Resolver = nameServer(t, names)
			m := to(fmt.Sprintf("http://hook.example.com:%d/", port))
			if err := p.Check(m); err != nil {
				t.Fatal(err)
			}
			if r := p.Send(t.Context(), m); r.Outcome != tt.want || r.Suppress {
				t.Errorf("result %+v, want %s", r, tt.want)
			}
		})
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("the server was called %d times", n)
	}
}

func TestAllowPrivate(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	addr := netip.MustParseAddrPort(srv.Listener.Addr().String())
	port := int(addr.Port())
	hook := fmt.Sprintf("http://hook.example.com:%d/", port)

	for name, tt := range map[string]struct {
		cfg  Config
		url  string
		want notify.Outcome
	}{
		"an address with its port":        {Config{AllowPrivate: []string{addr.String()}}, srv.URL, notify.Accepted},
		"another address with that port":  {Config{AllowPrivate: []string{addr.String()}}, fmt.Sprintf("http://127.0.0.2:%d/", port), notify.RecipientRejected},
		"that address with another port":  {Config{AllowPrivate: []string{"127.0.0.1:1"}}, srv.URL, notify.RecipientRejected},
		"a name with its port":            {Config{AllowPrivate: []string{fmt.Sprintf("Hook.Example.com:%d", port)}}, strings.ToUpper(hook[:20]) + hook[20:], notify.Accepted},
		"another name":                    {Config{AllowPrivate: []string{addr.String()}, AllowPorts: []int{port}}, hook, notify.RecipientRejected},
		"a prefix and a port":             {Config{AllowPrivate: []string{"127.0.0.0/8"}, AllowPorts: []int{port}}, srv.URL, notify.Accepted},
		"a name that stands for a prefix": {Config{AllowPrivate: []string{"127.0.0.0/8"}, AllowPorts: []int{port}}, hook, notify.Accepted},
		"a prefix without the port":       {Config{AllowPrivate: []string{"127.0.0.0/8"}}, srv.URL, notify.RecipientRejected},
		"another prefix":                  {Config{AllowPrivate: []string{"10.0.0.0/8", "::1/128"}, AllowPorts: []int{port}}, srv.URL, notify.RecipientRejected},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, func(c *Config) { c.AllowPrivate, c.AllowPorts = tt.cfg.AllowPrivate, tt.cfg.AllowPorts })
			resolver := nameServer(t, map[string][]string{"hook.example.com": {"127.0.0.1"}})
			p.guard.open.Resolver, p.guard.guarded.Resolver = resolver, resolver
			if r := p.Send(t.Context(), to(tt.url)); r.Outcome != tt.want {
				t.Errorf("result %+v, want %s", r, tt.want)
			}
		})
	}
}

// FuzzAcceptedURLLeadsOutside: whatever passes Check is http to a name, or to an
// address that the guard lets through when it dials.
func FuzzAcceptedURLLeadsOutside(f *testing.F) {
	for _, u := range []string{
		"https://example.com/a?b=c", "http://127.0.0.1/", "http://①②⑦.0.0.1/", "http://[::ffff:7f00:1]/", "http://[fe80::1%25lo]/",
		"http://0x7f.1/", "http://u:p@example.com/", "http://example.com:22/", "https://bücher.example/", "http://1.2.3.4.:80/",
	} {
		f.Add(u)
	}
	p, err := New("webhook-main", Config{Secrets: []secret.Value{secret.New("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32)))}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		m := to(raw)
		if p.Check(m) != nil {
			return
		}
		for _, s := range p.Scopes(m.To) {
			if len(s) > 64 {
				t.Errorf("scope of %d bytes", len(s))
			}
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, raw, http.NoBody)
		if err != nil {
			t.Fatalf("%q is accepted and cannot be called: %v", raw, err)
		}
		if s := req.URL.Scheme; s != "http" && s != "https" || req.URL.User != nil {
			t.Errorf("accepted %q", raw)
		}
		e, cerr := parseEndpoint(raw)
		if cerr != nil {
			t.Fatal(cerr)
		}
		if e.path != req.URL.RequestURI() || e.tls != (req.URL.Scheme == "https") || strings.ContainsAny(e.path+e.authority, " \r\n\t\x00\x7f") {
			t.Errorf("%q is called as %q of %q", raw, e.path, e.authority)
		}
		if ip, err := netip.ParseAddr(e.host); err == nil {
			network := "tcp6"
			if ip.Is4() {
				network = "tcp4"
			}
			if err := p.guard.guarded.Control(network, netip.AddrPortFrom(ip, e.port).String(), nil); err != nil {
				t.Errorf("accepted %q: %v", raw, err)
			}
		}
	})
}
