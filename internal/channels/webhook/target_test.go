package webhook

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels/h1"
)

// TestTheRequestIsTheOneThatNetHTTPMakes: the target stays as the caller wrote it,
// and Host is what servers know.
func TestTheRequestIsTheOneThatNetHTTPMakes(t *testing.T) {
	t.Parallel()
	seen := make(chan [2]string, 1)
	dial := func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close() //nolint:errcheck // a test's
			in := bufio.NewReader(far)
			line, _ := in.ReadString('\n')
			host, err := in.ReadString('\n') // both write it next
			for s := host; err == nil && s != "\r\n"; {
				s, err = in.ReadString('\n')
			}
			seen <- [2]string{line, strings.ToLower(host)} // of which the case means nothing
			_, _ = far.Write([]byte("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"))
		}()
		return near, nil
	}
	theirs := &http.Transport{DialContext: dial}
	ours := h1.New(h1.Config{Dial: dial, IdlePerHost: 1, Idle: 1, IdleFor: time.Minute})
	for _, url := range []string{
		"http://example.com", "http://example.com?x=1", "http://example.com?", "http://example.com/?", "http://EXAMPLE.com/X",
		"http://example.com./x", "http://example.com:80/x", "http://example.com:/x", "http://example.com:8080/?", "http://1.1.1.1/",
		"http://[2606:4700::1111]/", "http://[2606:4700::1111]:8080/x", "http://[2606:4700::1111%25eth0]/", "http://[2606:4700::1111%25eth0]:80/",
		"http://bücher.example/ü?ü=ü", "http://b%C3%BCcher.example:8080/", "http://faß.example/",
		"http://example.com/a%2Fb/%7e?q=%20&r=a+b", "http://example.com/a b", "http://example.com//a//b", "http://example.com/../a/./b",
		"http://example.com/*", "http://example.com/[x]{x}|^`\"<>?[x]{x}|^`\"<>", "http://example.com/?%zz", "http://example.com/%00%0d%0a",
		"http://example.com/~a'(b)!*,;:@&=+$?a=b?c=d/",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := theirs.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		want := <-seen
		e, cerr := parseEndpoint(url)
		if cerr != nil {
			t.Fatal(cerr)
		}
		if x := ours.Post(t.Context(), &h1.Request{Addr: e.addr, Authority: e.authority, Target: e.path}); x.Status != http.StatusNoContent {
			t.Fatalf("%q: exchange %+v", url, x)
		}
		if got := <-seen; got != want {
			t.Errorf("%q is called as %q, want %q", url, got, want)
		}
	}
}
