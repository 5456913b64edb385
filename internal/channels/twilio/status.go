package twilio

import (
	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// progress returns what the status of a Message resource proves: [notify.Sent] as
// soon as Twilio has the message, since it hands on what it has accepted, and the
// empty status for words that are not about a message sent, or not known.
//
// Source: twilio.com/docs/messaging/api/message-resource, "Message Status values".
func progress(status string) notify.Status {
	switch status {
	case "accepted", "scheduled", "queued", "sending", "sent", "partially_delivered":
		return notify.Sent
	case "delivered":
		return notify.Delivered
	case "read":
		return notify.Read
	case "failed", "undelivered", canceled:
		return notify.Failed
	}
	return ""
}

// canceled is the status of a message that somebody took back at Twilio.
const canceled = "canceled"

// failed says why a message of one of the failed statuses failed, by the error
// code that comes with it, 0 for none. Its scope is as the tables have it. The
// texts beside a code are never read: they may quote the number and the message.
func failed(status string, code int) channels.Result {
	if status == canceled {
		return withCode(channels.Result{Outcome: notify.MessageRejected, Detail: "message was canceled at twilio"}, code)
	}
	if r, ok := known(code); ok {
		return r
	}
	return withCode(channels.Result{Outcome: notify.MessageRejected, Detail: "message failed, and twilio does not say why"}, code)
}

// receipt returns what a status and its error code say of a message; false where
// that is nothing.
func receipt(sid, status string, code int) (channels.Receipt, bool) {
	r := channels.Receipt{MessageID: sid, Status: progress(status)}
	if r.Status == notify.Failed {
		why := failed(status, code)
		r.Outcome, r.Code, r.Detail = why.Outcome, why.Code, why.Detail
		r.Suppress, r.SuppressFor = why.Suppress, why.SuppressFor
	}
	return r, r.Status != ""
}
