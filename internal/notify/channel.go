// Package notify is the domain: what a notification is, the words for what
// happens to it, and the rules that need nothing but the notification itself.
// It imports nothing else of the project and does no I/O.
package notify

import (
	"errors"
	"fmt"
)

// Channel is what a person receives a notification on.
type Channel string

// The channels. Their names are part of the API and of the queue's names.
const (
	Push     Channel = "push"
	SMS      Channel = "sms"
	WhatsApp Channel = "whatsapp"
	Email    Channel = "email"
	Slack    Channel = "slack"
	Webhook  Channel = "webhook"
)

// Channels lists every channel in the order of the default chain, then those
// that a chain must name.
func Channels() []Channel {
	return []Channel{Push, SMS, WhatsApp, Email, Slack, Webhook}
}

// Valid reports whether c is one of the channels.
func (c Channel) Valid() bool {
	switch c {
	case Push, SMS, WhatsApp, Email, Slack, Webhook:
		return true
	}
	return false
}

// Priority orders work of one channel; 1 runs first. The numbers are River's.
type Priority int16

// The priorities. A request without one is Normal.
const (
	Critical Priority = 1
	High     Priority = 2
	Normal   Priority = 3
	Low      Priority = 4
)

// String returns the name used in the API.
func (p Priority) String() string {
	switch p {
	case Critical:
		return "critical"
	case High:
		return "high"
	case Normal:
		return "normal"
	case Low:
		return "low"
	}
	return fmt.Sprintf("priority(%d)", int16(p))
}

// ParsePriority is the inverse of [Priority.String]; the empty string is Normal.
func ParsePriority(s string) (Priority, bool) {
	switch s {
	case "critical":
		return Critical, true
	case "high":
		return High, true
	case "normal", "":
		return Normal, true
	case "low":
		return Low, true
	}
	return 0, false
}

// MarshalText implements [encoding.TextMarshaler].
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Priority) UnmarshalText(b []byte) error {
	v, ok := ParsePriority(string(b))
	if !ok {
		return errors.New("must be one of critical, high, normal, low")
	}
	*p = v
	return nil
}

// Mode says how many steps of a chain run.
type Mode string

// The modes. A request without one is First.
const (
	// First stops at the first step that meets its success criterion.
	First Mode = "first"
	// All runs every step; they start together and no step waits for another.
	All Mode = "all"
)
