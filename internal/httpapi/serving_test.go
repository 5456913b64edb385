package httpapi_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestChannelsSayWhichAccountServesAndWhyOthersDoNot(t *testing.T) {
	t.Parallel()
	type shown struct {
		Account string  `json:"account"`
		Share   float64 `json:"share"`
		Passed  string  `json:"passed_over"`
		Breaker struct {
			Because string `json:"because"`
			Code    string `json:"code"`
		} `json:"breaker"`
	}
	for name, test := range map[string]struct {
		main   store.ScopeState
		shares [2]float64
		passed string
		code   string
	}{
		"all is well": {store.ScopeState{Breaker: resilience.BreakerStatus{State: resilience.Closed}}, [2]float64{1, 0}, "", ""},
		"a rejected account": {store.ScopeState{Breaker: resilience.BreakerStatus{
			State: resilience.Open, Reason: resilience.ReasonRejected, Code: "20003", OpenUntil: noon.Add(5 * time.Minute), Trips: 1,
		}}, [2]float64{0, 1}, "breaker_open", "20003"},
		"a forced one": {store.ScopeState{GateUntil: noon.Add(time.Hour), Breaker: resilience.BreakerStatus{
			State: resilience.Open, Reason: resilience.ReasonForced, Forced: &resilience.Override{Who: "ana"},
		}}, [2]float64{0, 1}, "breaker_open", ""},
		"a probe under way": {store.ScopeState{Breaker: resilience.BreakerStatus{State: resilience.HalfOpen}}, [2]float64{0, 1}, "breaker_open", ""},
		"a gate":            {store.ScopeState{GateUntil: noon.Add(time.Minute)}, [2]float64{0, 1}, "throttled", ""},
		"calls that come back": {store.ScopeState{Breaker: resilience.BreakerStatus{
			State: resilience.Closed, Reason: resilience.ReasonProbesSucceeded, ChangedAt: noon.Add(-15 * time.Second), Trips: 1,
		}}, [2]float64{0.25, 0.75}, "returning", ""},
		"calls that are back": {store.ScopeState{Breaker: resilience.BreakerStatus{
			State: resilience.Closed, Reason: resilience.ReasonProbesSucceeded, ChangedAt: noon.Add(-time.Minute), Trips: 1,
		}}, [2]float64{1, 0}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			test.main.Scope = "twilio-main"
			s.states = []store.ScopeState{test.main}
			var got struct {
				Items []struct {
					Channel  string  `json:"channel"`
					Accounts []shown `json:"accounts"`
				} `json:"items"`
			}
			s.do(t, "GET", "/v1/channels", "").want(200).into(&got)
			for _, c := range got.Items {
				if c.Channel != "sms" {
					continue
				}
				a, b := c.Accounts[0], c.Accounts[1]
				if a.Account != "twilio-main" || a.Share != test.shares[0] || b.Share != test.shares[1] || a.Passed != test.passed || a.Breaker.Code != test.code || b.Passed != "" {
					t.Errorf("shown as %+v", c.Accounts)
				}
			}
		})
	}
}
