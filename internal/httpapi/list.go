package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Sizes of a page.
const (
	defaultPage = 50
	maxPage     = 100
)

type listInput struct {
	Status    string `query:"status" enum:"queued,sending,sent,delivered,read,failed,partially_failed,expired,canceled,suppressed" doc:"Of the notification as a whole."`
	Channel   string `query:"channel" enum:"push,sms,whatsapp,email,slack,webhook" doc:"Those with a step on this channel that has started."`
	Recipient string `query:"recipient" maxLength:"4096" doc:"An address, exactly as it was sent: a phone number, an email address, a URL, a device token, a Slack channel. Without channel it is looked for on every channel that it could belong to."`
	Reference string `query:"reference" maxLength:"255" doc:"The caller's own name."`
	After     string `query:"created_after" format:"date-time" doc:"Created at this instant or later."`
	Before    string `query:"created_before" format:"date-time" doc:"Created before this instant."`
	Limit     int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many at most."`
	Cursor    string `query:"cursor" maxLength:"64" doc:"The next of the page before, with the same filters."`
}

type listOutput struct {
	Body struct {
		Items []notificationView `json:"items"`
		Next  string             `json:"next,omitzero" doc:"The cursor of the following page; absent on the last."`
	}
}

func (a *API) listNotifications(ctx context.Context, in *listInput) (*listOutput, error) {
	project := keyOf(ctx).Project
	filter, errs := in.filter(project)
	if len(errs) > 0 {
		return nil, invalid(errs)
	}
	filter.Limit = in.Limit + 1 // one more tells whether there is a next page
	records, err := a.store.List(ctx, filter)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &listOutput{}
	if len(records) > in.Limit {
		records = records[:in.Limit]
		out.Body.Next = in.cursor(project, records[in.Limit-1].Notification.ID)
	}
	best := a.account(project)
	out.Body.Items = make([]notificationView, len(records))
	for i := range records {
		out.Body.Items[i] = view(&records[i], best)
	}
	return out, nil
}

func (in *listInput) filter(project string) (store.Filter, []ErrorDetail) {
	var errs []ErrorDetail
	wrong := func(ok bool, name, code, detail string) {
		if !ok {
			errs = append(errs, ErrorDetail{Parameter: "query." + name, Code: code, Detail: detail})
		}
	}
	f := store.Filter{
		Project: project, Status: notify.Status(in.Status), Channel: notify.Channel(in.Channel), Reference: in.Reference,
	}
	wrong(in.Status == "" || slices.Contains(notify.NotificationStatuses(), f.Status), "status", notify.CodeChoice,
		"must be one of queued, sending, sent, delivered, read, failed, partially_failed, expired, canceled, suppressed")
	wrong(in.Channel == "" || f.Channel.Valid(), "channel", notify.CodeChoice,
		"must be one of push, sms, whatsapp, email, slack, webhook")
	wrong(utf8.ValidString(in.Reference) && !strings.ContainsRune(in.Reference, 0) &&
		utf8.RuneCountInString(in.Reference) <= notify.MaxReference, "reference", notify.CodeFormat, "must be at most 255 characters in UTF-8")
	wrong(in.Limit >= 1 && in.Limit <= maxPage, "limit", notify.CodeRange, "must be 1 to 100")
	if in.Recipient != "" {
		f.Addresses = addresses(f.Channel, in.Recipient)
		wrong(len(f.Addresses) > 0, "recipient", notify.CodeFormat, "must be an address that the channel could have")
	}
	var ok bool
	f.After, ok = instant(in.After)
	wrong(ok, "created_after", notify.CodeFormat, "must be an RFC 3339 date-time, such as 2026-12-01T08:00:00Z")
	f.Before, ok = instant(in.Before)
	wrong(ok, "created_before", notify.CodeFormat, "must be an RFC 3339 date-time, such as 2026-12-01T08:00:00Z")
	f.Cursor, ok = in.position(project)
	wrong(ok, "cursor", notify.CodeFormat, "must be the next of a page with the same filters")
	return f, errs
}

func instant(s string) (time.Time, bool) {
	if s == "" {
		return time.Time{}, true
	}
	t, err := time.Parse(time.RFC3339, s)
	// Postgres ends before Go does, and a year of it is no filter anyway.
	return t, err == nil && t.Year() > 0 && t.Year() < 10_000
}

// addresses are the hashes of the addresses that a text could be: on one channel
// or, without one, on any.
func addresses(c notify.Channel, recipient string) [][16]byte {
	var out [][16]byte
	for _, channel := range notify.Channels() {
		if c != "" && c != channel {
			continue
		}
		for _, t := range targets(channel, recipient) {
			out = append(out, t.Hash(channel))
		}
	}
	return out
}

func targets(c notify.Channel, s string) []notify.Target {
	isURL := strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://")
	switch c {
	case notify.Push:
		if isURL {
			return []notify.Target{{Device: &notify.Device{Provider: "webpush", Endpoint: s}}}
		}
		return []notify.Target{
			{Device: &notify.Device{Provider: "fcm", Token: s}}, {Device: &notify.Device{Provider: "apns", Token: s}},
		}
	case notify.SMS, notify.WhatsApp:
		if strings.HasPrefix(s, "+") {
			return []notify.Target{{Phone: s}}
		}
	case notify.Email:
		if strings.Contains(s, "@") {
			return []notify.Target{{Email: &notify.EmailAddress{Address: s}}}
		}
	case notify.Slack:
		if isURL {
			return []notify.Target{{Slack: &notify.SlackTarget{WebhookURL: s}}}
		}
		return []notify.Target{{Slack: &notify.SlackTarget{Channel: s}}}
	case notify.Webhook:
		if isURL {
			return []notify.Target{{Webhook: &notify.WebhookTarget{URL: s}}}
		}
	}
	return nil
}

// A cursor is a version, the id of the last notification of its page, and a mark
// of the project and the filters, which it is good for alone. It is no secret
// and opens nothing: every page is read for the project of the key.
const (
	cursorVersion = 1
	markSize      = 8
)

func (in *listInput) cursor(project string, last uuid.UUID) string {
	b := append([]byte{cursorVersion}, last[:]...)
	return base64.RawURLEncoding.EncodeToString(append(b, in.mark(project)...))
}

// position reads the cursor; the zero id without one.
func (in *listInput) position(project string) (uuid.UUID, bool) {
	if in.Cursor == "" {
		return uuid.Nil, true
	}
	b, err := base64.RawURLEncoding.DecodeString(in.Cursor)
	if err != nil || len(b) != 1+len(uuid.UUID{})+markSize || b[0] != cursorVersion || !bytes.Equal(b[17:], in.mark(project)) {
		return uuid.Nil, false
	}
	return uuid.UUID(b[1:17]), true
}

func (in *listInput) mark(project string) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{
		project, in.Status, in.Channel, in.Recipient, in.Reference, in.After, in.Before,
	}))
	return sum[:markSize]
}
