package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// errKey: the key would not be one at the service either.
var errKey = errors.New("client: an idempotency key is 1 to 255 visible ASCII characters")

// Receipt is the service's word that it has a notification and will see it
// through.
type Receipt struct {
	ID     string   `json:"id"` // a UUIDv7
	Status string   `json:"status"`
	Chain  []Step   `json:"chain"` // with its defaults
	Wait   *Waiting `json:"waiting"`
}

// Send has the service accept a notification, which is stored durably when it
// returns. An error that is no [*Problem] leaves it open whether it was accepted;
// sending again with the same [Notification.IdempotencyKey] settles that.
func (c *Client) Send(ctx context.Context, n Notification) (*Receipt, error) {
	key := n.IdempotencyKey
	if key == "" {
		key = rand.Text()
	}
	if len(key) > 255 || !visible(key) {
		return nil, errKey
	}
	body, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("client: encode the notification: %w", err)
	}
	out := &Receipt{}
	err = c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "notifications"}, key: key, body: body}, out)
	if err != nil {
		return nil, err
	}
	return out, nil
}

func visible(s string) bool {
	seen := false
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
		seen = seen || s[i] != ' '
	}
	return seen
}

// Get reads what became of a notification. One that is not there, or belongs to
// another project, is a [*Problem] with status 404.
func (c *Client) Get(ctx context.Context, id string) (*Status, error) {
	out := &Status{}
	if err := c.do(ctx, call{method: http.MethodGet, path: []string{"v1", "notifications", url.PathEscape(id)}}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// CancelResult is the definitive answer to a cancel.
type CancelResult string

// The answers.
const (
	// Canceled: no call was made and none will be.
	Canceled CancelResult = "canceled"
	// TooLate: a call was made or is under way; what would have come after it is
	// stopped.
	TooLate CancelResult = "too_late"
	// AlreadyFinal: there was nothing left to stop.
	AlreadyFinal CancelResult = "already_final"
)

// Cancel stops a notification. It may be repeated.
func (c *Client) Cancel(ctx context.Context, id string) (CancelResult, error) {
	var out struct{ Result CancelResult }
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "notifications", url.PathEscape(id), "cancel"}}, &out)
	return out.Result, err
}

// Acknowledgement is what an acknowledgement did.
type Acknowledgement struct {
	// Result is acknowledged, already_acknowledged or already_final.
	Result         string    `json:"result"`
	AcknowledgedAt time.Time `json:"acknowledged_at"` // of the first one
	// Calling counts calls that had begun before and could not be stopped. When it
	// is 0, nothing reaches the person after this.
	Calling int `json:"calling"`
}

// Acknowledge tells that the person has seen a notification: what has not been
// sent is stopped. It may be repeated.
func (c *Client) Acknowledge(ctx context.Context, id string) (*Acknowledgement, error) {
	out := &Acknowledgement{}
	if err := c.do(ctx, call{method: http.MethodPost, path: []string{"v1", "notifications", url.PathEscape(id), "ack"}}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Filter selects notifications. Zero fields do not filter.
type Filter struct {
	Status        string // of the notification as a whole
	Channel       Channel
	Recipient     string // an address, exactly as it was sent
	Reference     string
	CreatedAfter  time.Time // at this instant or later
	CreatedBefore time.Time
	PageSize      int // how many each call asks for, 1 to 100; default the service's
}

// List returns the notifications of the key's project, newest first, without
// their attempts, page by page as they are consumed. It ends with an error if a
// page cannot be read.
func (c *Client) List(ctx context.Context, f Filter) iter.Seq2[*Status, error] {
	return func(yield func(*Status, error) bool) {
		query := f.query()
		for {
			var page struct {
				Items []*Status
				Next  string
			}
			if err := c.do(ctx, call{method: http.MethodGet, path: []string{"v1", "notifications"}, query: query}, &page); err != nil {
				yield(nil, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			query.Set("cursor", page.Next)
		}
	}
}

func (f *Filter) query() url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("status", f.Status)
	set("channel", string(f.Channel))
	set("recipient", f.Recipient)
	set("reference", f.Reference)
	if !f.CreatedAfter.IsZero() {
		set("created_after", f.CreatedAfter.Format(time.RFC3339Nano))
	}
	if !f.CreatedBefore.IsZero() {
		set("created_before", f.CreatedBefore.Format(time.RFC3339Nano))
	}
	if f.PageSize != 0 {
		set("limit", strconv.Itoa(f.PageSize))
	}
	return q
}
