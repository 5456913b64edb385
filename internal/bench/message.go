package bench

import (
	"bytes"
	"fmt"
)

// media types of a batch.
const (
	jsonType  = "application/json"
	linesType = "application/x-ndjson"
)

// channel is a channel as the benchmark uses it.
type channel struct {
	name   string
	status string // how far a notification comes
	// final says that it ends there. An SMS that was sent waits for its receipt,
	// which the sink does not give.
	final bool
	// message is the body of a POST: number n, to one of the sink's hosts.
	message func(hosts []string, n int) []byte
}

// text is what every message says besides its number, so that a payload has some
// 200 bytes.
const text = "api: 3 of 5 pods are down since 08:00 UTC and the deployment was rolled back; see the incident's page for what was tried"

var (
	webhooks = channel{"webhook", "delivered", true, func(hosts []string, n int) []byte {
		return webhookMessage(fmt.Sprintf("http://%s/w/%d", hosts[n%len(hosts)], n), n, "")
	}}
	texts = channel{"sms", "sent", false, func(_ []string, n int) []byte {
		return fmt.Appendf(nil, `{"to":{"sms":"+1415%07d"},"content":{"body":"%d %s"}}`, 5550000+n%4450000, n, text)
	}}
	mails = channel{"email", "sent", true, func(_ []string, n int) []byte {
		return fmt.Appendf(nil, `{"to":{"email":"user%d@example.com"},"content":{"title":"Message %d","body":"%s"}}`, n, n, text)
	}}
)

// webhookMessage is the body of a POST for a URL; more is further members, each
// with a comma before it.
func webhookMessage(url string, n int, more string) []byte {
	return fmt.Appendf(nil, `{"to":{"webhook":{"url":"%s"}},"chain":[{"channel":"webhook"}],"content":{"webhook":{"payload":%s}}%s}`,
		url, payload(n), more)
}

// payload is what a webhook carries.
func payload(n int) []byte {
	return fmt.Appendf(nil, `{"type":"incident.opened","number":%d,"text":"%s"}`, n, text)
}

// batch is the body of a batch of messages.
func batch(media string, messages [][]byte) []byte {
	if media == linesType {
		return append(bytes.Join(messages, []byte("\n")), '\n')
	}
	out := append([]byte(`{"notifications":[`), bytes.Join(messages, []byte(","))...)
	return append(out, "]}"...)
}
