package sandbox

import (
	"sync"
	"time"
)

// Providers, as rules and messages name them.
const (
	twilio       = "twilio"
	meta         = "meta"
	fcm          = "fcm"
	apns         = "apns"
	webPush      = "webpush"
	slack        = "slack"
	slackWebhook = "slack-webhook"
	webhook      = "webhook"
	smtpProvider = "smtp"

	// Calls beside the sending of messages: rules can break them, but they are
	// not messages and are not recorded.
	twilioLookup = "twilio-lookup"
	slackLookup  = "slack-lookup"
	fcmToken     = "fcm-token"
)

func providers() []string {
	return []string{
		twilio, meta, fcm, apns, webPush, slack, slackWebhook, webhook, smtpProvider,
		twilioLookup, slackLookup, fcmToken,
	}
}

type header struct{ name, value string }

// entry is one call as it is kept: raw, so that recording costs next to nothing.
// It does not change once it is in the log.
type entry struct {
	seq                         int64
	at                          time.Time
	provider, channel, to, from string
	raw                         []byte // the request's body, decrypted for web push
	headers                     []header
	answer                      Answer
	account                     string // Twilio: the account SID
	course                      course // what receipts say over time
}

// Answer is what the sandbox answered.
type Answer struct {
	// Status is the HTTP status or the SMTP reply code; 0 when the connection was
	// dropped before an answer.
	Status int `json:"status"`
	// Code is the vendor's own code: "21211", "UNREGISTERED", "5.1.1"; empty for success.
	Code string `json:"code,omitzero"`
	// ID is the vendor's id of an accepted message.
	ID string `json:"id,omitzero"`
	// Accepted tells whether the message counts as taken, answered or not. A rule
	// that answers 2xx counts.
	Accepted bool `json:"accepted"`
	// Drop is "before" or "after" where a rule closed the connection instead.
	Drop string `json:"drop,omitzero"`
	// Fault tells that a rule of /sandbox/faults made this answer.
	Fault bool `json:"fault,omitzero"`
}

// messageLog keeps the newest calls in order, bounded by count and by bytes.
type messageLog struct {
	mu       sync.Mutex
	entries  []*entry // ring, oldest at head
	head, n  int
	bytes    int
	last     int64
	twilioID map[string]*entry // accepted messages by SID
}

func newMessageLog(capacity int) *messageLog {
	return &messageLog{entries: make([]*entry, capacity), twilioID: map[string]*entry{}}
}

func (l *messageLog) add(e *entry) {
	size := e.size()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.n > 0 && (l.n == len(l.entries) || l.bytes+size > maxStored) {
		l.evict()
	}
	l.last++
	e.seq = l.last
	l.entries[(l.head+l.n)%len(l.entries)] = e
	l.n++
	l.bytes += size
	if e.provider == twilio && e.answer.ID != "" {
		l.twilioID[e.answer.ID] = e
	}
}

func (l *messageLog) evict() {
	e := l.entries[l.head]
	l.entries[l.head] = nil
	l.head = (l.head + 1) % len(l.entries)
	l.n--
	l.bytes -= e.size()
	if e.provider == twilio {
		delete(l.twilioID, e.answer.ID)
	}
}

func (e *entry) size() int { return 512 + len(e.raw) }

// clear forgets everything; numbers go on rising.
func (l *messageLog) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.entries)
	clear(l.twilioID)
	l.head, l.n, l.bytes = 0, 0, 0
}

// all returns the entries, oldest first.
func (l *messageLog) all() []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*entry, 0, l.n)
	first := min(l.n, len(l.entries)-l.head)
	out = append(out, l.entries[l.head:l.head+first]...)
	return append(out, l.entries[:l.n-first]...)
}

// numbered returns the entry with that number, or nil. Numbers have no gaps.
func (l *messageLog) numbered(seq int64) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	back := l.last - seq
	if back < 0 || back >= int64(l.n) {
		return nil
	}
	return l.entries[(l.head+l.n-1-int(back))%len(l.entries)]
}

func (l *messageLog) bySID(sid string) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.twilioID[sid]
}

// recently remembers the newest n keys that were shown to it.
type recently struct {
	mu   sync.Mutex
	seen map[string]struct{}
	ring []string
	next int
}

func newRecently(n int) *recently {
	return &recently{seen: map[string]struct{}{}, ring: make([]string, n)}
}

// first reports whether key is new, and remembers it.
func (r *recently) first(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.seen[key]; ok {
		return false
	}
	delete(r.seen, r.ring[r.next])
	r.ring[r.next] = key
	r.seen[key] = struct{}{}
	r.next = (r.next + 1) % len(r.ring)
	return true
}

func (r *recently) has(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.seen[key]
	return ok
}
