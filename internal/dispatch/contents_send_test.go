package dispatch_test

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestALargeContentIsSentWhole(t *testing.T) {
	t.Parallel()
	want := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(want)
	var got atomic.Int64
	email := newScript(notify.Email, func(n int, m *channels.Message) channels.Result {
		if e := m.Content.Email; e != nil && bytes.Equal(e.Attachments[0].Content, want) {
			got.Add(1)
		}
		if n == 1 {
			return channels.Result{Outcome: notify.ProviderUnavailable}
		}
		return channels.Ok("id-1")
	})
	n := single(t, account(email))
	what := notification(both, step(notify.Email))
	what.Content.Email = &notify.EmailContent{Attachments: []notify.Attachment{{Filename: "f", Content: want}}}
	if status, _ := n.final(t, n.accept(t, what)); status != notify.Sent || got.Load() != 2 {
		t.Errorf("it ended %s, sent whole %d times", status, got.Load())
	}
	broken := notification(both, step(notify.Email), step(notify.SMS))
	broken.Content = what.Content
	broken.SendAt = broken.CreatedAt.Add(time.Second)
	id := n.accept(t, broken)
	n.exec(t, "update dispatcher.notifications set content = json_build_array(repeat('x', 100000)) where id = $1", id)
	if status, r := n.final(t, id); status != notify.Failed || r.Deliveries[0].Because != "invalid" {
		t.Errorf("a broken one ended %s because %s", status, r.Deliveries[0].Because)
	}
}
