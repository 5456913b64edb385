package notify

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// Limits of one request. The SQL function dispatcher.enqueue applies the same.
const (
	MaxDepth        = 32                  // arrays and objects inside each other
	MaxSteps        = 10                  // of a chain
	MaxDevices      = 100                 // of to.push
	MaxHeaders      = 20                  // of to.webhook
	MaxURL          = 2048                // bytes
	MaxToken        = 4096                // bytes, of a push token or endpoint
	MaxReference    = 255                 // characters
	MaxMetadata     = 4 << 10             // bytes of compact JSON
	MaxContent      = 256 << 10           // bytes of compact JSON without attachments
	MaxAttachments  = 20                  // of one email
	MaxAttempts     = 20                  // of a step
	MinWithin       = time.Second         // of a step
	MaxWithin       = 7 * 24 * time.Hour  // of a step
	MaxPushTTL      = 28 * 24 * time.Hour // what FCM keeps a message for
	MaxYearsAhead   = 5                   // of send_at
	DefaultLifetime = 24 * time.Hour      // from send_at to expires_at
	MaxLifetime     = 30 * 24 * time.Hour // from send_at to expires_at

	// maxProblems bounds the answer to a request that is wrong all over.
	maxProblems = 100
)

// The codes of a [Problem]. They are part of the API.
const (
	// CodeMalformed, CodeDuplicateMember and CodeTooDeep: the body is no JSON
	// that this service reads (RFC 7493, I-JSON).
	CodeMalformed       = "malformed"
	CodeDuplicateMember = "duplicate_member"
	CodeTooDeep         = "too_deep"
	// The others are about a value at its place.
	CodeUnknownMember  = "unknown_member"
	CodeType           = "type"            // another JSON type is wanted
	CodeRequired       = "required"        // must be there, and not be empty
	CodeFormat         = "format"          // not of the shape that is wanted
	CodeChoice         = "choice"          // not one of the words that are allowed
	CodeRange          = "range"           // a number or an instant out of bounds
	CodeLength         = "length"          // too long, too large or too many
	CodeConflict       = "conflict"        // not together with something else
	CodeDuplicate      = "duplicate"       // the same twice
	CodeUnknownAccount = "unknown_account" // no such account, or none for the channel
	CodeUnobservable   = "unobservable"    // a success that nobody could ever see
)

// Problem is one thing that is wrong with a request. It never holds what the
// caller sent, beyond the names of members in the pointer.
type Problem struct {
	// Pointer is a JSON pointer (RFC 6901) into the body.
	Pointer string `json:"pointer"`
	// Code is one of the Code constants.
	Code string `json:"code"`
	// Detail says what is allowed.
	Detail string `json:"detail"`
}

// Malformed reports whether the body could not be read as JSON at all.
func (p Problem) Malformed() bool {
	return p.Code == CodeMalformed || p.Code == CodeDuplicateMember || p.Code == CodeTooDeep
}

// ParseOptions is what [Parse] has to know beside the body.
type ParseOptions struct {
	ID      uuid.UUID // of the new notification, a UUIDv7
	Project string
	Now     time.Time
	// Account returns the best status that an account of channel c can ever show
	// (Sent, Delivered or Read), and whether there is such an account. An empty
	// name asks for the account that a step without one goes through. Nil checks
	// no accounts.
	Account func(c Channel, name string) (best Status, ok bool)
}

// request is the body as it stands, before its rules are applied. An empty text
// counts as absent, except for an address.
type request struct {
	To        *toRequest     `json:"to"`
	Chain     []stepRequest  `json:"chain"`
	Mode      string         `json:"mode"`
	Content   *Content       `json:"content"`
	Priority  string         `json:"priority"`
	SendAt    string         `json:"send_at"`
	ExpiresAt string         `json:"expires_at"`
	Reference string         `json:"reference"`
	Metadata  jsontext.Value `json:"metadata"`
}

// Parse reads the body of a request for a notification, checks it against every
// rule that needs no database, and fills in the defaults. It returns either a
// notification that is ready to be accepted or what is wrong with the body: all
// of it, unless the JSON cannot be decoded, when it is the first fault alone.
//
// The JSON is I-JSON (RFC 7493: valid UTF-8, no member twice), at most
// [MaxDepth] deep, without unknown members and without U+0000, which neither
// text nor jsonb can hold. Null counts as absent. Numbers are kept as they are
// written.
//
// Rules for the members, beside those at toRequest, stepRequest and
// validator.content:
//   - mode is first (default) or all; priority is critical, high, normal
//     (default) or low;
//   - send_at and expires_at are RFC 3339 instants. A send_at that has passed is
//     now; it is at most [MaxYearsAhead] years ahead. expires_at lies after
//     send_at, by [MaxLifetime] at most and by [DefaultLifetime] if absent.
//     Instants are cut to microseconds, which is what Postgres keeps;
//   - reference is at most [MaxReference] characters;
//   - metadata is an object of at most [MaxMetadata] bytes.
func Parse(body []byte, o ParseOptions) (Notification, []Problem) {
	r, problems := decodeRequest(body)
	if len(problems) > 0 {
		return Notification{}, problems
	}
	v := validator{o: o}
	n := v.notification(&r)
	v.texts(body)
	if len(v.problems) > 0 {
		return Notification{}, v.problems
	}
	if len(body) > MaxContent && encodedSize(n.Content) > MaxContent {
		v.add("/content", CodeLength, "must be at most 256 KiB of JSON, attachments aside")
		return Notification{}, v.problems
	}
	return n, nil
}

// validator gathers what is wrong with one request.
type validator struct {
	o        ParseOptions
	problems []Problem
}

func (v *validator) add(pointer, code, detail string) {
	if len(v.problems) < maxProblems {
		v.problems = append(v.problems, Problem{Pointer: pointer, Code: code, Detail: detail})
	}
}

// check adds a problem unless ok.
func (v *validator) check(ok bool, pointer, code, detail string) {
	if !ok {
		v.add(pointer, code, detail)
	}
}

func (v *validator) notification(r *request) Notification {
	now := v.o.Now.UTC().Truncate(time.Microsecond)
	n := Notification{ID: v.o.ID, Project: v.o.Project, CreatedAt: now}
	var ok bool
	n.Priority, ok = ParsePriority(r.Priority)
	v.check(ok, "/priority", CodeChoice, "must be one of critical, high, normal, low")
	n.Mode = Mode(r.Mode)
	if n.Mode == "" {
		n.Mode = First
	}
	v.check(n.Mode == First || n.Mode == All, "/mode", CodeChoice, "must be first or all")
	n.To = v.to(r.To)
	n.Chain = v.chain(r, n.Mode, n.Priority)
	n.Content = v.content(r.Content, n.Chain)
	n.SendAt, n.ExpiresAt = v.times(r, now)
	n.Reference = r.Reference
	v.check(utf8.RuneCountInString(n.Reference) <= MaxReference, "/reference", CodeLength, "must be at most 255 characters")
	n.Metadata = v.object(r.Metadata, "/metadata")
	v.check(len(n.Metadata) <= MaxMetadata, "/metadata", CodeLength, "must be at most 4096 bytes of JSON")
	return n
}

func (v *validator) times(r *request, now time.Time) (sendAt, expiresAt time.Time) {
	sendAt = v.instant(r.SendAt, "/send_at")
	if sendAt.Before(now) {
		sendAt = now
	}
	v.check(!sendAt.After(now.AddDate(MaxYearsAhead, 0, 0)), "/send_at", CodeRange, "must be at most 5 years ahead")
	expiresAt = v.instant(r.ExpiresAt, "/expires_at")
	switch {
	case expiresAt.IsZero():
		return sendAt, sendAt.Add(DefaultLifetime)
	case !expiresAt.After(sendAt):
		v.add("/expires_at", CodeRange, "must be later than send_at, and later than now")
	case expiresAt.After(sendAt.Add(MaxLifetime)):
		v.add("/expires_at", CodeRange, "must be at most 30 days after send_at, or after now without it")
	}
	return sendAt, expiresAt
}

// instant reads an RFC 3339 date-time; zero if s is empty or wrong.
func (v *validator) instant(s, pointer string) time.Time {
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || !instantShape.MatchString(s) {
		v.add(pointer, CodeFormat, "must be an RFC 3339 date-time with a time zone, such as 2026-12-01T08:00:00Z")
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// object returns raw in its compact form, or nil where it is absent.
func (v *validator) object(raw jsontext.Value, pointer string) jsontext.Value {
	return v.raw(raw, pointer, jsontext.KindBeginObject, "must be an object")
}

func (v *validator) raw(raw jsontext.Value, pointer string, kind jsontext.Kind, detail string) jsontext.Value {
	if len(raw) == 0 || raw.Kind() == jsontext.KindNull {
		return nil
	}
	if raw.Kind() != kind {
		v.add(pointer, CodeType, detail)
		return nil
	}
	return compact(raw)
}

// compact drops white space and needless escapes and keeps numbers as they are.
// The value was decoded before, so it cannot fail.
func compact(raw jsontext.Value) jsontext.Value {
	if err := raw.Format(); err != nil {
		return nil
	}
	return raw
}

// encodedSize is the size of c as it is stored, attachments aside.
func encodedSize(c Content) int {
	if c.Email != nil {
		email := *c.Email
		email.Attachments = nil
		c.Email = &email
	}
	b, err := Encode(c)
	if err != nil {
		return 0
	}
	return len(b)
}

// at appends names and indexes to a JSON pointer.
func at(pointer string, parts ...any) string {
	var b strings.Builder
	b.WriteString(pointer)
	for _, p := range parts {
		b.WriteByte('/')
		switch p := p.(type) {
		case int:
			b.WriteString(strconv.Itoa(p))
		case string:
			b.WriteString(p)
		}
	}
	return b.String()
}

// reaches reports whether channel c is among the steps.
func reaches(chain []Step, c Channel) bool {
	return slices.ContainsFunc(chain, func(s Step) bool { return s.Channel == c })
}
