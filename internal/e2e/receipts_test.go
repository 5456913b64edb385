//go:build unix

package e2e_test

import (
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// escalating is an alert that goes on from SMS to WhatsApp to email until one of
// them is known to have arrived.
func escalating(within string) object {
	return object{
		"to": object{"sms": "+14155550100", "whatsapp": "+14155550100", "email": "ana@example.com"},
		"chain": []object{
			{"channel": "sms", "success": "delivered", "within": within},
			{"channel": "whatsapp", "account": "twilio-whatsapp", "success": "delivered", "within": within},
			{"channel": "email"},
		},
		"content": object{"title": "Deploy failed", "body": "api is down"},
	}
}

func TestAnAlertGoesOnUntilItArrives(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		receipts  sandbox.Receipts
		within    string
		sms, post string // why the first two steps ended
		steps     [3]string
		whole     string
	}{
		"undelivered everywhere": {
			receipts: sandbox.Receipts{Final: sandbox.FinalUndelivered, Repeat: 2, Shuffle: true}, within: "90s",
			sms: "undelivered: recipient_unavailable", post: "undelivered: recipient_unavailable",
			steps: [3]string{"failed", "failed", "sent"}, whole: "sent",
		},
		"nobody says anything": {
			receipts: sandbox.Receipts{Final: sandbox.FinalNone, Repeat: 1}, within: "3s",
			sms: "no_receipt", post: "no_receipt", steps: [3]string{"sent", "sent", "sent"}, whole: "sent",
		},
		"delivered before the answer": {
			receipts: sandbox.Receipts{Final: sandbox.FinalDelivered, Repeat: 1, BeforeAnswer: true}, within: "90s",
			steps: [3]string{"delivered", "pending", "pending"}, whole: "delivered",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, quick)
			n, _ := c.behindProxy(t)
			c.receipts(t, tt.receipts)
			v := n.finished(t, n.post(t, escalating(tt.within)))
			var got [3]string
			for i, s := range v.Steps {
				got[i] = s.Status
			}
			if got != tt.steps || v.Status != tt.whole {
				t.Fatalf("it ended %s, with the steps %v", v.Status, got)
			}
			for i, why := range []string{tt.sms, tt.post} {
				if why == "" {
					continue
				}
				if next := v.Steps[i+1]; next.StartedBecause != "fallback: "+why {
					t.Errorf("step %d started because %q, want %q", i+1, next.StartedBecause, why)
				}
			}
			for i, s := range v.Steps {
				if begun := s.Status != "pending"; begun && len(s.Attempts) != 1 || !begun && len(s.Attempts) != 0 {
					t.Errorf("step %d was called %d times", i, len(s.Attempts))
				}
			}
			n.tells(t, v)
		})
	}
}

// tells checks that the timeline has every start, call and receipt that the steps
// have, in order.
func (n *node) tells(t *testing.T, v notification) {
	t.Helper()
	starts, calls, receipts := 0, 0, 0
	for i, e := range v.Timeline {
		if i > 0 && e.At.Before(v.Timeline[i-1].At) {
			t.Errorf("the timeline goes back in time: %+v", v.Timeline)
		}
		switch e.Type {
		case "started":
			starts++
		case "attempt":
			calls++
		case "receipt":
			receipts++
		}
	}
	wantStarts, wantCalls, wantReceipts := 0, 0, 0
	for _, s := range v.Steps {
		wantCalls, wantReceipts = wantCalls+len(s.Attempts), wantReceipts+len(s.Receipts)
		if s.Status != "pending" {
			wantStarts++
		}
	}
	last := v.Timeline[len(v.Timeline)-1]
	if starts != wantStarts || calls != wantCalls || receipts != wantReceipts || !strings.Contains(v.Timeline[0].Type, "accepted") || !last.Final && last.Type != "receipt" {
		t.Errorf("the timeline has %d starts, %d calls, %d receipts; the steps %d, %d, %d: %+v", starts, calls, receipts, wantStarts, wantCalls, wantReceipts, v.Timeline)
	}
}
