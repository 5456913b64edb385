package dispatch

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Links makes the links that a message's text may ask for.
type Links interface {
	// Acknowledge returns the link by which a person acknowledges a notification.
	Acknowledge(ctx context.Context, id uuid.UUID) (string, error)
}

// WithAckLinks says what links look like, for messages that are only looked at,
// and that there are any: sample is one for no notification, as long as the real
// ones. It returns r and must be called before r is used.
func (r *Registry) WithAckLinks(sample string) *Registry {
	r.ackSample = sample
	return r
}

// linked is a notification as it will be sent, but that its links are for none.
func (r *Registry) linked(n *notify.Notification) *notify.Notification {
	if r.ackSample == "" || !n.Content.AsksForAck() {
		return n
	}
	shown := *n
	shown.Content = n.Content.WithAckURL(r.ackSample)
	return &shown
}

// checkLinks reports links that nobody could follow.
func (r *Registry) checkLinks(n *notify.Notification) []notify.Problem {
	if r.ackSample != "" || !n.Content.AsksForAck() {
		return nil
	}
	return []notify.Problem{{
		Pointer: "/content", Code: codeUnsendable,
		Detail: notify.AckPlaceholder + " needs the service's own address: http.public_url is not configured",
	}}
}

// link puts the links into a notification that is about to be sent.
func (d *Dispatcher) link(ctx context.Context, n *notify.Notification) error {
	if d.cfg.Links == nil || !n.Content.AsksForAck() {
		return nil
	}
	url, err := d.cfg.Links.Acknowledge(ctx, n.ID)
	if err != nil {
		return fmt.Errorf("make a link: %w", err)
	}
	n.Content = n.Content.WithAckURL(url)
	return nil
}
