package sandbox

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// What receipts end with.
const (
	FinalDelivered   = "delivered"
	FinalUndelivered = "undelivered"
	FinalFailed      = "failed"
	FinalRead        = "read"
	FinalNone        = "none"
)

// Receipts is how status callbacks of Twilio and Meta behave.
type Receipts struct {
	// Final is the last status: delivered, undelivered, failed, read or none. A
	// message goes through "sent" to it, and through "delivered" to "read", except
	// that failed comes at once and none is nothing at all. SMS knows no "read"
	// and stops at delivered; Meta has one word, failed, for the two failures.
	Final string `json:"final"`
	// Delay passes before each status, from 0 to 1 h.
	Delay notify.Duration `json:"delay"`
	// Repeat is how often each callback is sent, from 1 to 100.
	Repeat int `json:"repeat"`
	// Shuffle sends the callbacks in an order that is not that of the statuses.
	Shuffle bool `json:"shuffle"`
	// BeforeAnswer sends every callback, without delay, before the answer of the
	// call that they are about.
	BeforeAnswer bool `json:"before_answer"`
}

// DefaultReceipts is what is in force at start: delivered, each status 300 ms
// after the one before, once, in order.
func DefaultReceipts() Receipts {
	return Receipts{Final: FinalDelivered, Delay: notify.Duration(300 * time.Millisecond), Repeat: 1}
}

func (r Receipts) validate() error {
	finals := []string{FinalDelivered, FinalUndelivered, FinalFailed, FinalRead, FinalNone}
	switch {
	case !slices.Contains(finals, r.Final):
		return &FieldError{"/final", "must be delivered, undelivered, failed, read or none"}
	case r.Delay < 0 || r.Delay.Std() > time.Hour:
		return &FieldError{"/delay", "must be from 0s to 1h"}
	case r.Repeat < 1 || r.Repeat > 100:
		return &FieldError{"/repeat", "must be from 1 to 100"}
	}
	return nil
}

type receiptState struct {
	mu  sync.Mutex
	now Receipts
}

func (r *receiptState) set(v Receipts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = v
}

func (r *receiptState) get() Receipts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// SetReceipts changes how callbacks of messages accepted from now on behave. The
// error is a [*FieldError].
func (s *Server) SetReceipts(r Receipts) error {
	if err := r.validate(); err != nil {
		return err
	}
	s.receipts.set(r)
	return nil
}

// Receipts returns what is in force.
func (s *Server) Receipts() Receipts { return s.receipts.get() }

// stage is one status of a message, in the vendor's own words.
type stage struct {
	status string
	code   string // of a failure
}

// course is what happens to one accepted message.
type course struct {
	stages []stage // in the order in which they come true
	delay  time.Duration
	repeat int
	// shuffle is the callbacks' matter, not the message's.
	shuffle, beforeAnswer bool
}

// at returns the status that holds at that time after acceptance, and after what
// time it came to hold.
func (c course) at(since time.Duration) (st stage, after time.Duration, ok bool) {
	n, delay := len(c.stages), c.delay
	if c.beforeAnswer {
		delay = 0
	}
	if delay > 0 {
		n = min(n, int(since/delay))
	}
	if n <= 0 {
		return stage{}, 0, false
	}
	return c.stages[n-1], time.Duration(n) * delay, true
}

// calls returns the stages in the order in which callbacks tell them.
func (c course) calls() []stage {
	var out []stage
	for _, st := range c.stages {
		for range c.repeat {
			out = append(out, st)
		}
	}
	if !c.shuffle || len(c.stages) < 2 {
		return out
	}
	inOrder := slices.Clone(out)
	for slices.Equal(out, inOrder) {
		rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out
}

// failures are a vendor's words and usual codes for the two ways to fail.
type failures struct{ undelivered, failed stage }

// course plans a message's statuses; script, where a recipient has one, decides
// how it ends.
func (s *Server) course(f failures, canRead bool, script *Scripted) course {
	r := s.receipts.get()
	c := course{delay: r.Delay.Std(), repeat: r.Repeat, shuffle: r.Shuffle, beforeAnswer: r.BeforeAnswer}
	final := r.Final
	if script != nil && script.Final != "" {
		final = script.Final
		if script.Code != "" {
			f.undelivered.code, f.failed.code = script.Code, script.Code
		}
	}
	sent, delivered := stage{status: "sent"}, stage{status: "delivered"}
	switch final {
	case FinalDelivered:
		c.stages = []stage{sent, delivered}
	case FinalRead:
		c.stages = []stage{sent, delivered}
		if canRead {
			c.stages = append(c.stages, stage{status: "read"})
		}
	case FinalUndelivered:
		c.stages = []stage{sent, f.undelivered}
	case FinalFailed:
		c.stages = []stage{f.failed}
	}
	return c
}
