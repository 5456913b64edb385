package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// The three flushes that every notification takes part in, each of a hundred
// webhooks and of one, on a connection that has made them before. The database's
// own time is in it.
func BenchmarkFlush(b *testing.B) {
	for _, size := range []int{100, 1} {
		flushes := []struct {
			name  string
			flush func(d *db, w *flushed)
		}{
			{"accept", (*db).flushAccept}, {"claim", (*db).flushClaim}, {"record", (*db).flushRecord},
		}
		for i, timed := range flushes {
			b.Run(fmt.Sprintf("%s/%d", timed.name, size), func(b *testing.B) {
				d := open(b)
				b.ReportAllocs()
				for range b.N {
					b.StopTimer()
					w := &flushed{rows: make([]store.Acceptance, size)}
					for j := range w.rows {
						w.rows[j] = row(webhook(j))
					}
					for _, before := range flushes[:i] {
						before.flush(d, w)
					}
					b.StartTimer()
					timed.flush(d, w)
				}
			})
		}
	}
}

// flushed is what goes through the three flushes.
type flushed struct {
	rows    []store.Acceptance
	claimed []store.Claimed
}

// webhook makes the notification number n to one of sixteen hosts.
func webhook(n int) func(*store.Acceptance) {
	return func(a *store.Acceptance) {
		host := fmt.Sprintf("127.0.0.%d:8080", n%16)
		a.Notification.To = notify.To{Webhook: &notify.WebhookTarget{URL: fmt.Sprintf("http://%s/w/%d", host, n)}}
		a.Notification.Chain = []notify.Step{{Channel: notify.Webhook}}
		a.Notification.Content = notify.Content{Webhook: &notify.WebhookContent{Payload: fmt.Appendf(nil,
			`{"type":"incident.opened","number":%d,"text":"api: 3 of 5 pods are down since 08:00 UTC and the deployment was rolled back"}`, n)}}
		a.Starts = starts(&a.Notification, 0)
		a.Starts[0].Scopes = []string{"host:" + host}
	}
}

func (d *db) flushAccept(w *flushed) {
	if _, _, err := d.Accept(d.t.Context(), w.rows, now(), time.Hour); err != nil {
		d.t.Fatal(err)
	}
}

func (d *db) flushClaim(w *flushed) {
	claims := make([]store.Claim, len(w.rows))
	for i := range claims {
		claims[i] = claimOf(w.rows[i].Starts[0].Delivery)
	}
	var err error
	if w.claimed, _, err = d.Claim(d.t.Context(), d.node, claims, false); err != nil || len(w.claimed) != len(claims) {
		d.t.Fatal(len(w.claimed), err)
	}
}

func (d *db) flushRecord(w *flushed) {
	results := make([]store.Result, len(w.claimed))
	for i := range results {
		results[i] = outcome(w.claimed[i], notify.Accepted, store.After{Status: notify.Delivered, Final: true, Attempts: 1})
		id := results[i].DeliveryID
		results[i].Attempt.HTTPStatus = 200
		results[i].Events = []store.Event{{At: now(), ID: id, Project: results[i].Project, Type: "delivered", Final: true}}
	}
	if fates := d.record(results...); fates[0] != store.Written {
		d.t.Fatal(fates)
	}
}
