// Package sms sends text messages.
package sms

import (
	"errors"
	"regexp"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/channels/twilio"
)

// Config is an account at Twilio for SMS.
//
// What it takes to send for real: a Twilio account that is no longer on trial (a
// trial writes to verified numbers only), a number or sender ID that can send to
// the countries wanted, and those countries enabled under Messaging > Settings >
// Geo permissions. Numbers of the United States also need a registered 10DLC
// campaign, or toll-free verification.
type Config struct {
	twilio.Account `yaml:",inline"`
	// From is the sender: a number in E.164, a short code, or an alphanumeric
	// sender ID of at most 11 characters where the destination allows one.
	From string `yaml:"from"`
	// MessagingServiceSID is MG and 32 hexadecimal digits: a service picks the
	// sender from its pool. Either it or From is required; with both, From must be
	// in the pool.
	MessagingServiceSID string `yaml:"messaging_service_sid"`
	// SmartEncoded lets Twilio replace characters such as curly quotes by those of
	// the GSM alphabet, which can make a message cheaper. Default false.
	SmartEncoded bool `yaml:"smart_encoded"`
	// MaxSegments refuses texts that would be billed as more segments than that,
	// counted by [Segments] before any smart encoding. Default 0: no limit but the
	// 1600 characters of Twilio's own.
	MaxSegments int `yaml:"max_segments"`
}

var (
	number    = regexp.MustCompile(`^\+[1-9][0-9]{5,14}$`)
	shortCode = regexp.MustCompile(`^[0-9]{3,8}$`)
	senderID  = regexp.MustCompile(`^[0-9A-Za-z &+_-]{1,11}$`)
)

// problems returns what is wrong with c beside its account.
func (c Config) problems() error {
	var problems []error
	switch {
	case c.From == "" && c.MessagingServiceSID == "":
		problems = append(problems, errors.New("from: is required, or messaging_service_sid"))
	case c.From != "" && !isSender(c.From):
		problems = append(problems, errors.New("from: must be a number in E.164, a short code or a sender ID of at most 11 characters"))
	}
	if c.MessagingServiceSID != "" && !twilio.IsSID("MG", c.MessagingServiceSID) {
		problems = append(problems, errors.New("messaging_service_sid: must be MG and 32 hexadecimal digits"))
	}
	if c.MaxSegments < 0 {
		problems = append(problems, errors.New("max_segments: must not be negative"))
	}
	return errors.Join(problems...)
}

// isSender reports whether s can be a From. A sender ID has at least one letter.
func isSender(s string) bool {
	if number.MatchString(s) || shortCode.MatchString(s) {
		return true
	}
	letters := strings.ContainsFunc(s, func(r rune) bool { return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' })
	return letters && senderID.MatchString(s)
}
