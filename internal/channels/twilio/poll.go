package twilio

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Poll asks Twilio once what has become of a message, as [channels.Poller] has it.
// That Twilio has the message was known before, so that the receipt is empty until
// the message is delivered, read or failed.
func (c *Client) Poll(ctx context.Context, messageID string) (channels.Receipt, channels.Result) {
	if channels.Code(messageID) == "" {
		return channels.Receipt{}, channels.Result{Outcome: notify.NotAttempted, Detail: "not an id of twilio's"}
	}
	x := c.get(ctx, "/Messages/"+url.PathEscape(messageID)+".json", channels.Do)
	var m resource
	if x.Status != http.StatusOK || x.Err != nil || json.Unmarshal(x.Body, &m) != nil || m.SID != messageID {
		return channels.Receipt{}, missed(ctx, x)
	}
	call := channels.Result{Outcome: notify.Accepted, HTTPStatus: x.Status}
	r, ok := receipt(m.SID, m.Status, m.ErrorCode)
	if !ok || r.Status == notify.Sent {
		return channels.Receipt{}, call
	}
	r.At, _ = time.Parse(time.RFC1123Z, m.DateUpdated)
	return r, call
}

// missed is what a call that reads told, where it did not give what it was to.
func missed(ctx context.Context, x channels.Exchange) channels.Result {
	r := channels.MissedLookup(ctx, x).Call
	if code := errorCode(x.Body); code != 0 && x.Status != 0 {
		r.Code = strconv.Itoa(code)
	}
	return r
}
