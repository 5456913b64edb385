package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

const (
	// maxContents bounds how many bytes of large contents, as they are stored, a
	// node holds at once for the calls that need them.
	maxContents = 64 << 20
	// contentPatience is how long a call waits for its content.
	contentPatience = 10 * time.Second
)

// contents are the large contents of the calls under way. Hundreds of calls may
// be, and what each of them sends may be megabytes.
type contents struct{ room *semaphore.Weighted }

func newContents() *contents { return &contents{semaphore.NewWeighted(maxContents)} }

// take waits for room for so many bytes and returns what gives it back. What is
// larger than all of it takes all of it.
func (c *contents) take(ctx context.Context, size int) (leave func(), err error) {
	weight := int64(min(size, maxContents))
	if err := c.room.Acquire(ctx, weight); err != nil {
		return nil, err
	}
	return func() { c.room.Release(weight) }, nil
}

// loadContent reads the content of a claimed delivery that the claim left out, or
// sets its Invalid. leave must be called when it is not needed any more.
func (d *Dispatcher) loadContent(ctx context.Context, c *store.Claimed) (leave func(), err error) {
	if c.ContentSize == 0 || c.Invalid != nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, contentPatience)
	defer cancel()
	leave, err = d.contents.take(ctx, c.ContentSize)
	if err != nil {
		return nil, fmt.Errorf("wait for room for a large content: %w", err)
	}
	c.Notification.Content, err = d.content(ctx, c.DeliveryID)
	switch {
	case err == nil:
	case store.Classify(err) == store.Transient, errors.Is(err, context.Canceled):
		leave()
		return nil, err
	default:
		c.Invalid = err
	}
	return leave, nil
}

// content reads a content, again and again while the database is away.
func (d *Dispatcher) content(ctx context.Context, id store.DeliveryID) (notify.Content, error) {
	for {
		content, err := d.store.Content(ctx, id.Notification)
		if err == nil || store.Classify(err) != store.Transient || ctx.Err() != nil {
			return content, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
