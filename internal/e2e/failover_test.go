//go:build unix

package e2e_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

const (
	backupSID    = "ACbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	mainSender   = "+15005550006"
	backupSender = "+15005550016"
)

// withBackup gives SMS a second account at Twilio and returns the SID of the first.
func (c *cluster) withBackup(t *testing.T) string {
	t.Helper()
	sid := ""
	c.edit(t, func(file object) {
		sms := file["channels"].(object)["sms"].(object)
		main := sms["accounts"].([]any)[0].(object)
		sid = main["account_sid"].(string)
		backup := maps.Clone(main)
		backup["name"], backup["account_sid"], backup["from"] = "twilio-backup", backupSID, backupSender
		sms["accounts"] = []any{main, backup}
	})
	return sid
}

type accountHealth struct {
	Account string  `json:"account"`
	Share   float64 `json:"share"`
	Passed  string  `json:"passed_over"`
	Breaker struct {
		State   string `json:"state"`
		Because string `json:"because"`
		Code    string `json:"code"`
	} `json:"breaker"`
}

// smsAccounts are the two accounts as GET /v1/channels shows them.
func (n *node) smsAccounts(t *testing.T) (main, backup accountHealth) {
	t.Helper()
	got, err := n.call(t, http.MethodGet, "/v1/channels", "", nil)
	if err != nil || got.status != 200 {
		t.Fatalf("channels: %d, %v", got.status, err)
	}
	var list struct {
		Items []struct {
			Channel  string          `json:"channel"`
			Accounts []accountHealth `json:"accounts"`
		} `json:"items"`
	}
	if err := json.Unmarshal(got.body, &list); err != nil {
		t.Fatal(err)
	}
	for _, i := range list.Items {
		if i.Channel == "sms" {
			return i.Accounts[0], i.Accounts[1]
		}
	}
	t.Fatal("there is no channel sms")
	return main, backup
}

// bySender counts calls by account.
func bySender(calls []sandbox.Message) map[string]int {
	out := map[string]int{}
	for _, m := range calls {
		out[m.From]++
	}
	return out
}

// The first Twilio account answers 401: traffic moves to the second at once, an
// operator sees why, and after the repair it comes back without a burst.
func TestARejectedAccountHandsOverToTheSecondAndComesBackWithoutABurst(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick)
	sid := c.withBackup(t)
	nodes := []*node{c.serve(t), c.serve(t)}
	n := nodes[0]
	sms := func(i int) object { return c.alone("sms", i) }
	c.faults(t, sandbox.Rule{Provider: "twilio", Account: sid, Answer: sandbox.RuleAnswer{
		Status: http.StatusUnauthorized, Body: jsontext.Value(`{"code":20003,"status":401}`),
	}})
	begun := time.Now()
	first := n.finished(t, n.post(t, sms(0)))
	if a := first.Steps[0].Attempts; first.Status != "sent" || len(a) != 2 || a[0].Account != "twilio-main" || a[0].Outcome != "account_rejected" ||
		a[1].Account != "twilio-backup" || a[1].Outcome != "accepted" {
		t.Fatalf("the first one ended as %+v", first)
	}
	t.Logf("the second account had it after %.2f s", time.Since(begun).Seconds())
	main, backup := n.smsAccounts(t)
	if main.Share != 0 || main.Passed != "breaker_open" || main.Breaker.State != "open" || main.Breaker.Because != "account_rejected" || main.Breaker.Code != "20003" || backup.Share != 1 {
		t.Errorf("shown as %+v and %+v", main, backup)
	}
	for _, node := range nodes {
		node.said(t, &node.stderr, 10*time.Second, `account is passed over.*twilio-main.*breaker_open`)
	}

	const during = 100
	begin(t, nodes, 1, during+1, sms).wait(t)
	c.settled(t, during+1)
	if got := bySender(c.received("twilio")); got[mainSender] != 1 || got[backupSender] != during+1 {
		t.Errorf("while it was rejected the accounts were called %v", got)
	}

	// Repaired, and an operator says so.
	c.faults(t)
	n.operate(t, "/v1/channels/twilio-main/breaker", object{"action": "reset", "why": "the token is new"})
	repaired := time.Now()
	const after = 400
	begin(t, nodes, during+1, during+1+after, sms).wait(t)
	c.settled(t, during+1+after)
	took := time.Since(repaired)
	calls := bySender(c.received("twilio"))
	// Evenly over a minute, and never less than a twentieth; each process may be a
	// second behind.
	share := max(0.05, (took+time.Second).Seconds()/60)
	if got := float64(calls[mainSender] - 1); got > after*share+40 {
		t.Errorf("%v of %d went to the repaired account within %s", got, after, took.Round(time.Second))
	}
	if calls[mainSender]+calls[backupSender] != during+1+after+1 {
		t.Errorf("the accounts were called %v for %d notifications and one refusal", calls, during+1+after)
	}
	wantEachOnce(t, slices.DeleteFunc(c.stories(t), func(s *story) bool { return s.reference == reference(0) }))
	if main, _ := n.smsAccounts(t); main.Passed != "returning" && took < time.Minute {
		t.Errorf("the repaired account is shown as %+v", main)
	}
	if log := n.stderr.String(); strings.Count(log, "account is passed over") != 1 {
		t.Errorf("the log tells of the switch %d times", strings.Count(log, "account is passed over"))
	}
}
