package store_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// attached gives the notification an attachment of so many random bytes.
func attached(size int) func(*store.Acceptance) {
	return func(a *store.Acceptance) {
		content := make([]byte, size)
		source := rand.NewChaCha8([32]byte{1})
		_, _ = source.Read(content)
		a.Notification.Content.Email = &notify.EmailContent{Attachments: []notify.Attachment{{Filename: "f", Content: content}}}
	}
}

// allocated is how many bytes do asked for. No other test runs meanwhile, since
// the test that asks is not parallel.
func allocated(do func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

func TestReadsOfManyLeaveLargeContentsWhereTheyAre(t *testing.T) { //nolint:paralleltest // it measures the heap
	d := open(t)
	const count, size, few = 8, 1 << 20, 2 << 20
	rows, ids, claims := make([]store.Acceptance, count), make([]uuid.UUID, count), make([]store.Claim, count)
	for i := range rows {
		rows[i] = row(attached(size))
		ids[i], claims[i] = rows[i].Notification.ID, claimOf(rows[i].Starts[0].Delivery)
		d.accept(rows[i])
	}
	if got := allocated(func() {
		if r, err := d.Records(t.Context(), ids); err != nil || len(r) != count {
			t.Errorf("read %d, %v", len(r), err)
		}
		if r, err := d.List(t.Context(), store.Filter{Project: "default", Limit: 200}); err != nil || len(r) != count {
			t.Errorf("listed %d, %v", len(r), err)
		}
	}); got > few {
		t.Errorf("to read %d records took %d bytes", count, got)
	}
	var claimed []store.Claimed
	if got := allocated(func() { claimed = d.tryClaim(claims...) }); got > few || len(claimed) != count {
		t.Errorf("to claim %d took %d bytes", len(claimed), got)
	}
	for _, c := range claimed {
		content, err := d.Content(t.Context(), c.Notification.ID)
		if err != nil || c.ContentSize < size || !bytes.Equal(content.Email.Attachments[0].Content, rows[0].Notification.Content.Email.Attachments[0].Content) {
			t.Fatalf("content of %d bytes, %v", c.ContentSize, err)
		}
	}
}

func TestAClaimBringsASmallContent(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, size := range []int{0, 1000, 8000, 20_000} {
		a := row(attached(size))
		if got := d.claim(d.accept(a)[0]); got.ContentSize != 0 || cmp.Diff(a.Notification.Content, got.Notification.Content) != "" {
			t.Errorf("%d bytes attached: size %d, content differs: %v", size, got.ContentSize, got.Notification.Content.Email == nil)
		}
	}
	// What is told apart by its size as it is stored may be compressed.
	a := row()
	a.Notification.Content.Body = string(bytes.Repeat([]byte("x"), 200_000))
	if got := d.claim(d.accept(a)[0]); got.ContentSize < 200_000 || got.Notification.Content.Body != "" {
		t.Errorf("a long body: size %d, %d bytes of it", got.ContentSize, len(got.Notification.Content.Body))
	}
	if _, err := d.Content(t.Context(), uuid.New()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no such notification: %v", err)
	}
}
