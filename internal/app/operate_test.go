package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/app"
)

// soon is within how long an operator's decision must hold everywhere.
const soon = 1500 * time.Millisecond

// stopped sends until a notification is held for the reason, and checks that
// nothing was called later than soon after the decision.
func (c *cluster) stopped(decided time.Time, to, reason string) (held int) {
	c.t.Helper()
	sent := len(c.calls())
	c.eventually("a delivery is held", func() bool {
		id := c.send(to)
		held++
		settled := false
		c.eventually("it was called or is held", func() bool {
			settled = c.waits(id, reason)
			return settled || len(c.calls()) >= sent+held
		})
		return settled
	})
	for range 4 {
		id := c.send(to)
		held++
		c.eventually("it is held", func() bool { return c.waits(id, reason) })
	}
	calls := c.calls()
	if n := len(calls); n > sent {
		held -= n - sent
		if late := calls[n-1].Sub(decided); late > soon {
			c.t.Errorf("a call %v after the decision", late)
		}
	}
	return held
}

// resumed checks that what was held is called, and when the first of it is.
func (c *cluster) resumed(decided time.Time, held, before int) {
	c.t.Helper()
	c.eventually("all is called", func() bool { return len(c.calls()) == before+held })
	if took := c.calls()[before].Sub(decided); took > soon {
		c.t.Errorf("the first call %v after the decision", took)
	}
}

const text = `{"to":{"sms":"+15005550006"},"chain":[{"channel":"sms"}],"content":{"body":"hello"}}`

func TestAnOperatorsDecisionsHoldInEveryProcess(t *testing.T) { //nolint:tparallel // its parts are one story
	t.Parallel()
	c := newCluster(t)
	hook := `{"to":{"webhook":{"url":"` + c.sandbox.HTTPURL() + `/webhook/x"}},"chain":[{"channel":"webhook"}],"content":{"body":"hello"}}`
	host := "host:" + strings.TrimPrefix(c.sandbox.HTTPURL(), "http://")
	for _, tt := range []struct{ name, to, stop, stopBody, start, startBody, reason string }{
		{
			"open and reset", text, "twilio-main/breaker", `{"action":"open","why":"incident"}`,
			"twilio-main/breaker", `{"action":"reset","why":"over"}`, "breaker_open",
		},
		{
			"open and close", text, "twilio-main/breaker", `{"action":"open","why":"incident"}`,
			"twilio-main/breaker", `{"action":"close","why":"over"}`, "breaker_open",
		},
		{
			"open and reset a webhook account, which has no breaker of its own", hook, "webhook-main/breaker", `{"action":"open","why":"incident"}`,
			"webhook-main/breaker", `{"action":"reset","why":"over"}`, "breaker_open",
		},
		{
			"open and reset a host", hook, "webhook-main/breaker", `{"action":"open","why":"incident","scope":"` + host + `"}`,
			"webhook-main/breaker", `{"action":"reset","why":"over","scope":"` + host + `"}`, "breaker_open",
		},
		{"pause and resume", text, "sms/pause", `{"why":"incident"}`, "sms/resume", `{"why":"over"}`, "paused"},
	} {
		ok := t.Run(tt.name, func(t *testing.T) {
			c.t = t
			before := len(c.calls())
			c.send(tt.to)
			c.eventually("a first call", func() bool { return len(c.calls()) > before })
			c.post("/v1/channels/"+tt.stop, tt.stopBody)
			held := c.stopped(time.Now(), tt.to, tt.reason)
			before = len(c.calls())
			c.post("/v1/channels/"+tt.start, tt.startBody)
			c.resumed(time.Now(), held, before)
		})
		c.t = t
		if !ok {
			return
		}
	}
	c.recorded()
}

// recorded checks what is kept of the decisions above.
func (c *cluster) recorded() {
	c.t.Helper()
	var list struct {
		Items []struct{ Action, Target, By, Why string }
	}
	c.ask(http.MethodGet, "/v1/channels/actions", "", http.StatusOK, &list)
	var got []string
	for _, d := range list.Items {
		got = append(got, d.Action)
		if !strings.HasPrefix(d.By, "on call (") || d.Why == "" {
			c.t.Errorf("action %+v", d)
		}
	}
	if want := "resume pause reset open reset open close open reset open"; strings.Join(got, " ") != want {
		c.t.Errorf("actions %s, want %s", got, want)
	}
	var history struct {
		Breaker     struct{ State string }
		Transitions []struct{ From, To, Reason, By, Why string }
	}
	c.ask(http.MethodGet, "/v1/channels/twilio-main/breaker", "", http.StatusOK, &history)
	got = nil
	for _, tr := range history.Transitions {
		got = append(got, tr.To+" "+tr.Reason+" "+tr.Why)
	}
	if want := "closed forced over, open forced incident, closed reset over, open forced incident"; strings.Join(got, ", ") != want || history.Breaker.State != "closed" {
		c.t.Errorf("state %s after %s, want %s", history.Breaker.State, strings.Join(got, ", "), want)
	}
}

func TestWhatIsForcedOpenUntilAnInstantIsProbedThen(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	until := time.Now().Add(3 * time.Second)
	c.post("/v1/channels/twilio-main/breaker", `{"action":"open","why":"their maintenance","until":"`+until.UTC().Format(time.RFC3339Nano)+`"}`)
	var list struct {
		Items []struct {
			Channel  string
			Accounts []struct {
				Account string
				Breaker struct {
					State     string
					ForcedWhy string `json:"forced_why"`
				}
			}
		}
	}
	c.ask(http.MethodGet, "/v1/channels", "", http.StatusOK, &list)
	if b := list.Items[1].Accounts[0]; b.Breaker.State != "open" || b.Breaker.ForcedWhy != "their maintenance" {
		t.Errorf("shown as %+v", list.Items[1])
	}
	ids := []string{c.send(text), c.send(text), c.send(text)}
	c.eventually("all are called", func() bool { return len(c.calls()) == len(ids) })
	if first := c.calls()[0]; first.Before(until) {
		t.Errorf("a call %v too early", until.Sub(first))
	}
	c.eventually("the breaker is closed", func() bool {
		var v struct {
			Breaker struct{ State, Because string }
		}
		c.ask(http.MethodGet, "/v1/channels/twilio-main/breaker", "", http.StatusOK, &v)
		return v.Breaker.State == "closed" && v.Breaker.Because == "probes_succeeded"
	})
}

func TestWhatIsHeldForLongIsToldByOneProcess(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.post("/v1/channels/twilio-main/breaker", `{"action":"open","why":"incident"}`)
	c.eventually("a delivery is held", func() bool {
		id := c.send(text)
		held := false
		c.eventually("it was called or is held", func() bool {
			held = c.waits(id, "breaker_open")
			return held || len(c.calls()) > 0
		})
		return held
	})
	for _, a := range []*app.App{c.front, c.back} {
		for _, longer := range []time.Duration{time.Hour, 0} {
			if err := a.TellHeld(t.Context(), longer); err != nil {
				t.Fatal(err)
			}
		}
	}
	const line = `level=WARN msg="deliveries are held for long" scope=twilio-main channel=sms reason=breaker_open`
	if lines := c.log.lines("held for long"); len(lines) != 1 || !strings.Contains(lines[0], line) || !strings.Contains(lines[0], `count="less than 10"`) {
		t.Errorf("the log says %q", lines)
	}
	metrics := c.at(c.back, http.MethodGet, "/metrics", "", http.StatusOK)
	const series = `dispatcher_held_oldest_seconds{channel="sms",reason="breaker_open"} `
	if _, after, ok := strings.Cut(string(metrics), series); !ok || strings.HasPrefix(after, "0\n") {
		t.Errorf("no age of what is held in the metrics: %.20q", after)
	}
}
