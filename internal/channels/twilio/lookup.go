package twilio

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// pageSize is how many messages a look-up asks for. One page is all it reads: in
// a window of a few minutes one recipient has fewer.
const pageSize = 50

// Wanted describes a message that Twilio may have taken. There is no parameter by
// which a request could be known again, so that it is found by what it says.
type Wanted struct {
	Channel notify.Channel
	Target  notify.Target
	To      string // as Twilio writes it
	From    string // as Twilio writes it; empty where a service picks it
	Service string // the Messaging Service, or empty
	Body    string
	// Altered says that Twilio may have changed characters of Body, as smart
	// encoding does.
	Altered      bool
	Began, Ended time.Time // of the call
}

// LookUp asks Twilio for the messages to one recipient and returns those that w
// describes.
//
// They are not filtered by DateSent, although that is the one date the API filters
// by: a message has none before it leaves the queue, and one that the list leaves
// out would be taken for one that does not exist. The list is newest first.
func (c *Client) LookUp(ctx context.Context, w Wanted) channels.Sighting {
	x := c.list(ctx, w.To)
	var page struct {
		Messages    *[]resource `json:"messages"`
		NextPageURI string      `json:"next_page_uri"`
	}
	if x.Status != http.StatusOK || x.Err != nil || json.Unmarshal(x.Body, &page) != nil || page.Messages == nil {
		return channels.Sighting{Call: missed(ctx, x)}
	}
	var found []channels.Result
	list, from := *page.Messages, w.Began.Add(-channels.LookupSkew)
	complete := page.NextPageURI == "" || reachesBack(list, from)
	for _, m := range slices.Backward(list) {
		created, err := time.Parse(time.RFC1123Z, m.DateCreated)
		switch {
		case err != nil:
			complete = false
		case created.Before(from.Truncate(time.Second)), !w.sentBy(m):
		case w.says(m):
			found = append(found, w.became(m))
		case w.maySay(m):
			complete = false
		}
	}
	return channels.FoundLookup(x, found, complete && x.ReceivedAt.Sub(w.Ended) >= channels.LookupSettles)
}

// list asks for the newest messages to a recipient.
func (c *Client) list(ctx context.Context, to string) channels.Exchange {
	query := url.Values{"To": {to}, "PageSize": {strconv.Itoa(pageSize)}}
	return c.get(ctx, "/Messages.json?"+query.Encode(), channels.DoListing)
}

// resource is what is read of a Message resource.
type resource struct {
	SID         string `json:"sid"`
	From        string `json:"from"`
	Service     string `json:"messaging_service_sid"`
	Body        string `json:"body"`
	Status      string `json:"status"`
	Direction   string `json:"direction"`
	ErrorCode   int    `json:"error_code"`
	DateCreated string `json:"date_created"`
	DateUpdated string `json:"date_updated"`
}

// reachesBack reports whether a page that is not the last shows everything since
// an instant: it is newest first, and ends before it.
func reachesBack(page []resource, since time.Time) bool {
	var last time.Time
	for i, m := range page {
		created, err := time.Parse(time.RFC1123Z, m.DateCreated)
		if err != nil || i > 0 && created.After(last) {
			return false
		}
		last = created
	}
	return len(page) > 0 && last.Before(since)
}

// sentBy reports whether the message may be the account's own to w's recipient.
func (w Wanted) sentBy(m resource) bool {
	switch {
	case strings.HasPrefix(m.Direction, "inbound"):
		return false
	case w.Service != "":
		return m.Service == w.Service
	}
	return m.From == w.From
}

// says reports whether the message has w's text. Space around a text does not
// survive the way through a phone network.
func (w Wanted) says(m resource) bool {
	return channels.Code(m.SID) != "" && strings.TrimSpace(m.Body) == strings.TrimSpace(w.Body)
}

// maySay reports whether the message could be w's although its text differs: a
// trial account's has a notice before it, and smart encoding changes characters.
func (w Wanted) maySay(m resource) bool {
	return w.Altered || strings.Contains(m.Body, strings.TrimSpace(w.Body))
}

// became returns what the message has come to since.
func (w Wanted) became(m resource) channels.Result {
	status := progress(m.Status)
	if status == notify.Failed {
		r := failed(m.Status, m.ErrorCode)
		r.MessageID, r.Scope = m.SID, resolve(r.Scope, w.Channel, w.Target)
		return r
	}
	r := channels.Ok(m.SID)
	if status != "" {
		r.Status = status
	}
	return r
}
