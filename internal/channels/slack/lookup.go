package slack

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const (
	// historyScope is the scope of the rate limit that Slack keeps for reading a
	// conversation: tier 3, about fifty calls a minute for an app of the workspace's
	// own. Others have far fewer and are told so by a 429.
	historyScope     = "conversations.history"
	historyPerSecond = 50.0 / 60
	historyBurst     = 5
	// historySize is how many messages of a conversation a look-up asks for.
	historySize = 100
)

// LookupScopes implements [channels.Lookup].
func (b *Bot) LookupScopes(notify.Target) []string { return []string{historyScope} }

// LookUp implements [channels.Lookup]: a message is known by the delivery's key
// in its metadata. It takes the scope channels:history (groups:history for private
// channels), and a conversation that is named by its ID, since Slack reads none by
// its name. A reply in a thread is not part of the history and cannot be found.
// https://docs.slack.dev/reference/methods/conversations.history
func (b *Bot) LookUp(ctx context.Context, m *channels.Message, began, ended time.Time) channels.Sighting {
	if m.To.Slack == nil || m.To.Slack.Channel == "" || thread(&m.Content) != "" {
		return channels.Sighting{Call: channels.Result{Outcome: notify.NotAttempted, Detail: "a reply in a thread cannot be looked up"}}
	}
	x := b.history(ctx, m.To.Slack.Channel, began.Add(-channels.LookupSkew))
	var page history
	parsed := x.Status != 0 && x.Err == nil && json.Unmarshal(x.Body, &page) == nil
	if !parsed || !page.OK || page.Messages == nil || x.Status != http.StatusOK {
		return b.unread(ctx, x, page.Error)
	}
	var found []channels.Result
	for _, message := range slices.Backward(page.Messages) {
		if message.Metadata.EventType == metadataEvent && message.Metadata.Payload.Key == m.Key.String() && channels.Code(message.TS) != "" {
			found = append(found, channels.Ok(message.TS))
		}
	}
	complete := !page.HasMore && x.ReceivedAt.Sub(ended) >= channels.LookupSettles
	return channels.FoundLookup(x, found, complete)
}

// history is what conversations.history says, newest first.
type history struct {
	OK       bool   `json:"ok"`
	Error    string `json:"error"`
	HasMore  bool   `json:"has_more"`
	Messages []struct {
		TS       string `json:"ts"`
		Metadata struct {
			EventType string `json:"event_type"`
			Payload   struct {
				Key string `json:"key"`
			} `json:"event_payload"`
		} `json:"metadata"`
	} `json:"messages"`
}

// history reads a conversation since an instant.
func (b *Bot) history(ctx context.Context, channel string, since time.Time) channels.Exchange {
	form := url.Values{
		"channel": {channel}, "limit": {strconv.Itoa(historySize)}, "include_all_metadata": {"1"},
		"oldest": {fmt.Sprintf("%d.%06d", since.Unix(), since.Nanosecond()/1000)},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.api+historyScope, strings.NewReader(form.Encode()))
	if err != nil {
		return channels.Exchange{Err: err}
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer "+b.token.Reveal())
	return channels.DoListing(b.client, req)
}

// unread is the sighting of an answer that shows no history.
func (b *Bot) unread(ctx context.Context, x channels.Exchange, name string) channels.Sighting {
	s := channels.MissedLookup(ctx, x)
	if v, known := lookup(apiErrors, name); known {
		s.Call.Outcome = v.outcome
		s.Call.RetryAfter = retryAfter(x, v)
		if v.outcome == notify.AccountRejected || v.outcome == notify.RecipientRejected {
			s.Call.Outcome = notify.MessageRejected // of the look-up, see channels.MissedLookup
		}
	}
	s.Call.Code = code(name)
	if s.Call.Outcome == notify.Throttled {
		s.Call.Scope = historyScope
	}
	return s
}

var _ channels.Lookup = (*Bot)(nil)
