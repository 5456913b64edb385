package channeltest_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// toyReader reads the toy vendor's callbacks: a form with id and status at the
// path "status", and in X-Toy-Signature an HMAC over URL and body. A flaw, if any,
// makes it one of the readers that the suite is there to find.
type toyReader struct {
	flaw  string
	reads atomic.Int64
}

func toySign(c *channels.Callback) string {
	mac := hmac.New(sha256.New, []byte(toyKey))
	mac.Write([]byte(c.URL))
	mac.Write(c.Body)
	return hex.EncodeToString(mac.Sum(nil))
}

func (r *toyReader) ReadCallback(_ context.Context, c *channels.Callback) (channels.Report, error) {
	refused := func(status int, reason string) (channels.Report, error) {
		if r.flaw == "has errors of its own" {
			return channels.Report{}, errors.New(reason)
		}
		if r.flaw == "quotes the key" {
			reason += " " + toyKey
		}
		return channels.Report{}, &channels.CallbackError{Status: status, Reason: reason}
	}
	if c.Path != "status" && r.flaw != "takes any path" {
		return refused(http.StatusNotFound, "no such callback")
	}
	given := c.Header.Get("X-Toy-Signature")
	if !r.genuine(c, given) {
		return refused(http.StatusForbidden, "the signature does not hold")
	}
	form, err := url.ParseQuery(string(c.Body))
	if err != nil && r.flaw == "panics" {
		panic(err)
	}
	if err != nil || form.Get("id") == "" {
		return refused(http.StatusBadRequest, "no message")
	}
	if r.flaw == "changes what it reads" {
		c.Header.Del("X-Toy-Signature")
	}
	receipt := channels.Receipt{MessageID: form.Get("id"), Status: notify.Status(form.Get("status"))}
	if r.flaw == "reports once" && r.reads.Add(1) > 1 {
		return channels.Report{}, nil
	}
	if r.flaw == "leaves a failure without its reason" {
		receipt.Status = notify.Failed
	}
	return channels.Report{Receipts: []channels.Receipt{receipt}}, nil
}

func (r *toyReader) genuine(c *channels.Callback, given string) bool {
	switch {
	case r.flaw == "takes what is not signed" && given == "", r.flaw == "panics":
		return true
	case r.flaw == "compares beginnings" && given != "":
		return strings.HasPrefix(toySign(c), given)
	case r.flaw == "leaves the body out":
		return given == toySign(&channels.Callback{URL: c.URL, Body: []byte("id=m-1&status=delivered")})
	}
	return hmac.Equal([]byte(given), []byte(toySign(c)))
}

func toyCallbacks(flaw string) channeltest.Callbacks {
	want := channels.Receipt{MessageID: "m-1", Status: notify.Delivered}
	if flaw == "leaves a failure without its reason" {
		want.Status = notify.Failed
	}
	return channeltest.Callbacks{
		New:     func(*testing.T) channels.CallbackReader { return &toyReader{flaw: flaw} },
		Proof:   []string{"X-Toy-Signature"},
		Secrets: []string{toyKey},
		Genuine: []channeltest.GenuineCallback{{
			Name: "delivered",
			Make: func() *channels.Callback {
				c := &channels.Callback{
					Method: http.MethodPost, URL: "https://dispatcher.example.com/v1/receipts/toy/status", Path: "status",
					Body: bytes.Clone([]byte("id=m-1&status=delivered")),
				}
				c.Header = http.Header{"X-Toy-Signature": {toySign(c)}}
				return c
			},
			Want: channels.Report{Receipts: []channels.Receipt{want}},
		}},
	}
}

// TestCallbackSuite runs the suite against the toy's reader: the sound one, or in
// a process that [TestCallbackSuiteFindsFlaws] starts, one with a flaw.
func TestCallbackSuite(t *testing.T) {
	channeltest.RunCallbacks(t, toyCallbacks(os.Getenv("CHANNELTEST_FLAW")))
}

func TestCallbackSuiteFindsFlaws(t *testing.T) { //nolint:tparallel // its children are processes
	if os.Getenv("CHANNELTEST_FLAW") != "" {
		t.Skip("inside the run with a flaw")
	}
	for flaw, sign := range map[string]string{
		"takes what is not signed":            "refuses_what_carries_no_proof",
		"compares beginnings":                 "refuses_what_carries_no_proof",
		"leaves the body out":                 "refuses_or_ignores_every_changed_byte",
		"takes any path":                      "refuses_another_path",
		"has errors of its own":               "refuses_what_carries_no_proof",
		"quotes the key":                      "refuses_what_carries_no_proof",
		"changes what it reads":               "reads_what_the_vendor_reports,_each_time_alike",
		"reports once":                        "reads_what_the_vendor_reports,_each_time_alike",
		"leaves a failure without its reason": "reads_what_the_vendor_reports,_each_time_alike",
	} {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			out := runFlawed(t, "TestCallbackSuite", flaw)
			if want := fmt.Sprintf("--- FAIL: TestCallbackSuite/%s ", sign); !strings.Contains(out, want) {
				t.Errorf("the suite passed over it; want %q in\n%s", want, out)
			}
		})
	}
	t.Run("panics", func(t *testing.T) {
		t.Parallel()
		if out := runFlawed(t, "TestCallbackSuite", "panics"); !strings.Contains(out, "panic: ") {
			t.Errorf("the suite passed over it:\n%s", out)
		}
	})
}
