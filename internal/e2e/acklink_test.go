//go:build unix

package e2e_test

import (
	"net/http"
	"regexp"
	"testing"
	"time"
)

func TestThePersonEndsTheChainByTheLinkInTheMessage(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick)
	c.edit(t, func(file object) { file["http"] = object{"public_url": "https://n.example.com"} })
	n := c.serve(t)
	id := n.post(t, object{
		"to": object{"sms": "+14155550100", "email": "ana@example.com"},
		"chain": []object{
			{"channel": "sms", "success": "acknowledged", "within": "1h"},
			{"channel": "email"},
		},
		"content": object{"title": "Deploy failed", "body": "Confirm: {{ack_url}}"},
	})
	link := regexp.MustCompile(`Confirm: https://n\.example\.com(/a/[\w-]{38})$`)
	var path string
	eventually(t, 10*time.Second, "the message has a link", func() bool {
		for _, m := range c.received("twilio") {
			if found := link.FindStringSubmatch(m.Body); found != nil {
				path = found[1]
			}
		}
		return path != ""
	})
	person := &node{url: n.url} // without a key
	open := func(method, path string, status int) {
		t.Helper()
		if got, err := person.call(t, method, path, "", nil); err != nil || got.status != status {
			t.Fatalf("%s answers %d %s, %v", method, got.status, got.body, err)
		}
	}
	open(http.MethodGet, path, http.StatusOK)
	if v := n.show(t, id); v.AcknowledgedAt != nil {
		t.Error("opening the page acknowledged it")
	}
	open(http.MethodPost, path[:len(path)-1]+"_", http.StatusNotFound)
	open(http.MethodPost, path, http.StatusOK)
	open(http.MethodPost, path, http.StatusOK) // twice does no harm
	v := n.finished(t, id)
	if v.AcknowledgedAt == nil || v.Status != "sent" || v.Steps[0].Status != "sent" || v.Steps[1].Status != "pending" {
		t.Errorf("it ended as %+v", v)
	}
	if mails := c.received("smtp"); len(mails) != 0 {
		t.Errorf("the chain went on: %+v", mails)
	}
}

func TestALinkNeedsAnAddressToPointAt(t *testing.T) {
	t.Parallel()
	n := newCluster(t).serve(t)
	got, err := n.call(t, http.MethodPost, "/v1/notifications", "", encode(t, object{
		"to": object{"sms": "+14155550100"}, "content": object{"body": "Confirm: {{ack_url}}"},
	}))
	if err != nil || got.status != http.StatusUnprocessableEntity || !regexp.MustCompile(`http\.public_url is not configured`).Match(got.body) {
		t.Errorf("the API answered %d %s, %v", got.status, got.body, err)
	}
}
