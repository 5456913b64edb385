package channeltest

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Callbacks describes the callbacks of one provider to [RunCallbacks].
type Callbacks struct {
	// New makes the account.
	New func(t *testing.T) channels.CallbackReader
	// Genuine are callbacks as the vendor makes them, with what they report.
	Genuine []GenuineCallback
	// Proof are the headers without which, or with less in them, a callback is
	// refused with 403. Empty where the proof is in the body.
	Proof []string
	// Unsigned are headers that the vendor's signature does not cover, and whose
	// loss may change what is reported or whether anything is.
	Unsigned []string
	// Secrets are texts that may be in no report and no error: tokens, and what
	// people wrote.
	Secrets []string
}

// GenuineCallback is a callback that a provider must take.
type GenuineCallback struct {
	Name string
	// Make makes it; a vendor's own clock and nonces are the caller's to fix.
	Make func() *channels.Callback
	Want channels.Report
}

// RunCallbacks checks what every [channels.CallbackReader] must do.
func RunCallbacks(t *testing.T, s Callbacks) {
	t.Helper()
	if s.New == nil || len(s.Genuine) == 0 {
		t.Fatal("channeltest: New and Genuine must be set")
	}
	t.Run("reads what the vendor reports, each time alike", s.checkGenuine)
	t.Run("refuses what carries no proof", s.checkUnproven)
	t.Run("refuses or ignores every changed byte", s.checkAltered)
	t.Run("refuses another path", s.checkPaths)
	t.Run("survives garbage", s.checkGarbage)
}

func (s Callbacks) checkGenuine(t *testing.T) {
	reader := s.New(t)
	for _, g := range s.Genuine {
		t.Run(g.Name, func(t *testing.T) {
			c := g.Make()
			var reports [4]channels.Report
			var wg sync.WaitGroup
			for i := range reports {
				wg.Go(func() {
					var err error
					if reports[i], err = reader.ReadCallback(t.Context(), c); err != nil {
						t.Errorf("refused: %v", err)
					}
				})
			}
			wg.Wait()
			if diff := cmp.Diff(g.Want, reports[0]); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			for _, again := range reports[1:] {
				if diff := cmp.Diff(reports[0], again); diff != "" {
					t.Errorf("read again (-first +again):\n%s", diff)
				}
			}
			if diff := cmp.Diff(g.Make(), c); diff != "" {
				t.Errorf("reading changed the callback (-before +after):\n%s", diff)
			}
			CheckReport(t, reports[0], s.Secrets)
		})
	}
}

func (s Callbacks) checkUnproven(t *testing.T) {
	reader := s.New(t)
	for _, g := range s.Genuine {
		for _, name := range s.Proof {
			for what, change := range map[string]func(http.Header){
				"without": func(h http.Header) { h.Del(name) },
				"empty":   func(h http.Header) { h.Set(name, "") },
				"cut":     func(h http.Header) { h.Set(name, h.Get(name)[:len(h.Get(name))-1]) },
			} {
				c := g.Make()
				change(c.Header)
				_, err := reader.ReadCallback(t.Context(), c)
				if status := s.refusal(t, err); status != http.StatusForbidden {
					t.Errorf("%s, %s %s: status %d, want 403", g.Name, name, what, status)
				}
			}
		}
	}
}

// checkAltered changes each byte of URL, header values and body, one at a time.
// What is taken in spite of it must report the same: the change was in something
// that nobody reads, or is another spelling of the same.
func (s Callbacks) checkAltered(t *testing.T) {
	reader := s.New(t)
	for _, g := range s.Genuine {
		check := func(what string, c *channels.Callback) {
			got, err := reader.ReadCallback(t.Context(), c)
			if err != nil {
				s.refusal(t, err)
				return
			}
			if diff := cmp.Diff(g.Want, got); diff != "" {
				t.Errorf("%s, %s: it was taken (-genuine +altered):\n%s", g.Name, what, diff)
			}
		}
		for _, x := range []byte{0x01, 0x02, 0x10, 0x20, 0x80} {
			for i := range g.Make().Body {
				c := g.Make()
				c.Body = bytes.Clone(c.Body)
				c.Body[i] ^= x
				check(fmt.Sprintf("byte %d of the body ^ %#x", i, x), c)
			}
			for i := range g.Make().URL {
				c := g.Make()
				c.URL = c.URL[:i] + string([]byte{c.URL[i] ^ x}) + c.URL[i+1:]
				check(fmt.Sprintf("byte %d of the url ^ %#x", i, x), c)
			}
			for name := range g.Make().Header {
				if slices.Contains(s.Unsigned, name) {
					continue
				}
				for i := range g.Make().Header.Get(name) {
					c := g.Make()
					value := c.Header.Get(name)
					c.Header.Set(name, value[:i]+string([]byte{value[i] ^ x})+value[i+1:])
					check(fmt.Sprintf("byte %d of %s ^ %#x", i, name, x), c)
				}
			}
		}
	}
}

// checkPaths calls other paths, with the URL of the genuine callback and with one
// that fits the path.
func (s Callbacks) checkPaths(t *testing.T) {
	reader := s.New(t)
	for _, g := range s.Genuine {
		for _, path := range []string{"", "/", "nowhere", "../" + g.Make().Path, g.Make().Path + "/", g.Make().Path + "x", strings.ToUpper(g.Make().Path)} {
			for _, fits := range []bool{false, true} {
				c := g.Make()
				if fits {
					c.URL = strings.Replace(c.URL, c.Path, path, 1)
				}
				if c.Path = path; path == g.Make().Path {
					continue
				}
				if _, err := reader.ReadCallback(t.Context(), c); s.refusal(t, err) == 0 {
					t.Errorf("%s: taken at path %q", g.Name, path)
				}
			}
		}
	}
}

// checkGarbage shows what is no callback at all, beside the genuine one's proof.
func (s Callbacks) checkGarbage(t *testing.T) {
	reader := s.New(t)
	bodies := []string{
		"", "{}", "[]", "null", "&", "=", "%", "%zz=1", "a", "\x00", "\xff\xfe", htmlPage,
		strings.Repeat("[", 100_000), strings.Repeat("a=b&", 100_000), strings.Repeat("x", 1<<20),
	}
	for _, g := range s.Genuine {
		for _, body := range bodies {
			c := g.Make()
			if c.Body = []byte(body); bytes.Equal(c.Body, g.Make().Body) {
				continue
			}
			s.readGarbage(t, reader, c)
		}
		for _, u := range []string{"", ":", "http://", "http://[::1/", "//", "%zz", "\x00"} {
			c := g.Make()
			c.URL = u
			s.readGarbage(t, reader, c)
		}
		c := g.Make()
		c.Header = nil
		s.readGarbage(t, reader, c)
	}
	s.readGarbage(t, reader, &channels.Callback{})
	s.readGarbage(t, reader, &channels.Callback{Method: "BREW", URL: "coffee:pot", Query: url.Values{"": {""}}, Header: http.Header{"": nil}})
}

func (s Callbacks) readGarbage(t *testing.T, reader channels.CallbackReader, c *channels.Callback) {
	t.Helper()
	report, err := reader.ReadCallback(t.Context(), c)
	if err == nil {
		// A handshake, or a part of the request that nobody reads.
		CheckReport(t, report, s.Secrets)
		return
	}
	s.refusal(t, err)
}

// refusal checks the error of a refused callback and returns its status, 0 for no
// error.
func (s Callbacks) refusal(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var refused *channels.CallbackError
	if !errors.As(err, &refused) {
		t.Errorf("refused with %T, want a CallbackError: %v", err, err)
		return -1
	}
	switch refused.Status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusServiceUnavailable:
	default:
		t.Errorf("refused with status %d", refused.Status)
	}
	if refused.Reason == "" || len(refused.Reason) > 256 {
		t.Errorf("a reason of %d bytes", len(refused.Reason))
	}
	for _, secret := range s.Secrets {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error discloses a secret: %q", err)
		}
	}
	return refused.Status
}

// CheckReport checks what must hold for every report: receipts that
// [channels.Receipt.Clean] leaves alone, with a status that is one, naming a
// delivery or a message; consents that name a person or a delivery; and none of
// the secrets in any text but a consent's address.
func CheckReport(t *testing.T, r channels.Report, secrets []string) {
	t.Helper()
	for _, receipt := range r.Receipts {
		CheckReceipt(t, receipt, secrets)
		if receipt.Ref.IsZero() && receipt.MessageID == "" {
			t.Errorf("a receipt of nothing: %+v", receipt)
		}
	}
	for _, c := range r.Consents {
		if c.Target == (notify.Target{}) && c.Ref.IsZero() {
			t.Errorf("a consent of nobody: %+v", c)
		}
		if !slices.Contains([]string{"stop", "start", "complaint", "unsubscribe"}, c.Reason) || c.Stop == (c.Reason == "start") {
			t.Errorf("a consent for reason %q with stop %t", c.Reason, c.Stop)
		}
		if c.Code != channels.Code(c.Code) {
			t.Errorf("a consent's code is none: %q", c.Code)
		}
	}
	if s := r.Answer.Status; s != 0 && s/100 != 2 {
		t.Errorf("a callback that was taken is answered with %d", s)
	}
	for _, secret := range secrets {
		if len(secret) >= 4 && bytes.Contains(r.Answer.Body, []byte(secret)) {
			t.Errorf("the answer discloses a secret: %q", r.Answer.Body)
		}
	}
}

// CheckReceipt checks what must hold for every receipt of a callback or a poll.
func CheckReceipt(t *testing.T, r channels.Receipt, secrets []string) {
	t.Helper()
	switch r.Status {
	case notify.Sent, notify.Delivered, notify.Read:
		if r.Outcome != "" || r.Suppress {
			t.Errorf("a receipt of %s fails or suppresses: %+v", r.Status, r)
		}
	case notify.Failed:
		if r.Outcome == notify.Accepted || r.Outcome == notify.NotAttempted {
			t.Errorf("a receipt fails with outcome %q", r.Outcome)
		}
	default:
		t.Errorf("a receipt of status %q", r.Status)
	}
	if clean := r.Clean(); clean != r {
		t.Errorf("Clean changes %+v to %+v", r, clean)
	}
	if r.SuppressFor < 0 || r.SuppressFor > 0 && !r.Suppress {
		t.Errorf("suppress %t for %v", r.Suppress, r.SuppressFor)
	}
	for field, text := range map[string]string{"Code": r.Code, "MessageID": r.MessageID, "Detail": r.Detail} {
		for _, secret := range secrets {
			if len(secret) >= 4 && strings.Contains(text, secret) {
				t.Errorf("%s discloses a secret: %q", field, text)
			}
		}
	}
}
