package cli

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// messageFlags are the flags that a notification is made from.
type messageFlags struct {
	file                                           *string
	push                                           list
	sms, whatsApp, email, slack, webhook           *string
	title, text                                    *string
	chain, mode                                    *string
	priority, reference, sendAt, expiresAt, within *string
}

func newMessageFlags(f *flag.FlagSet) *messageFlags {
	m := &messageFlags{
		file:      f.String("file", "", "read the notification from this JSON `file`, - for standard input"),
		sms:       f.String("to-sms", "", "a phone `number` in E.164, such as +14155550100"),
		whatsApp:  f.String("to-whatsapp", "", "a phone `number` in E.164"),
		email:     f.String("to-email", "", "an email `address`"),
		slack:     f.String("to-slack", "", "a Slack `channel`, or the URL of an incoming webhook"),
		webhook:   f.String("to-webhook", "", "the `url` of a webhook"),
		title:     f.String("title", "", "the `title`, also an email's subject"),
		text:      f.String("body", "", "the `text`"),
		chain:     f.String("chain", "", "the `channels` in order, such as push,sms,email (default: push, sms, whatsapp, email)"),
		mode:      f.String("mode", "", "`how` the chain runs: first (stop at the first success) or all"),
		priority:  f.String("priority", "", "critical, high, normal or low, as `name`"),
		reference: f.String("reference", "", "your own `name` for it"),
		sendAt:    f.String("send-at", "", "not before this `time`, such as 2026-12-01T08:00:00Z"),
		expiresAt: f.String("expires-at", "", "not after this `time`"),
		within:    f.String("within", "", "how `long` each step but the last may take, such as 90s"),
	}
	f.Var(&m.push, "to-push", "a push `device`: fcm:TOKEN or apns:TOKEN; may be given more than once")
	return m
}

// object is JSON as it is put together.
type object = map[string]any

// body returns the notification as JSON.
func (m *messageFlags) body(e *env) ([]byte, error) {
	body, err := m.read(e)
	if err != nil {
		return nil, err
	}
	if err := m.recipient(child(body, "to")); err != nil {
		return nil, err
	}
	set(child(body, "content"), "title", *m.title)
	set(child(body, "content"), "body", *m.text)
	for name, value := range map[string]*string{
		"mode": m.mode, "priority": m.priority, "reference": m.reference, "send_at": m.sendAt, "expires_at": m.expiresAt,
	} {
		set(body, name, *value)
	}
	if err := m.steps(body); err != nil {
		return nil, err
	}
	for _, name := range []string{"to", "content"} {
		if o, ok := body[name].(object); ok && len(o) == 0 {
			delete(body, name)
		}
	}
	if len(body) == 0 {
		return nil, usagef("there is nothing to send: give --to-… and --body, or --file; see dispatcher send --help")
	}
	b, err := json.Marshal(body, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode notification: %w", err)
	}
	return b, nil
}

func (m *messageFlags) read(e *env) (object, error) {
	body := object{}
	if *m.file == "" {
		return body, nil
	}
	var b []byte
	var err error
	if *m.file == "-" {
		b, err = io.ReadAll(e.stdin)
	} else {
		b, err = os.ReadFile(*m.file)
	}
	if err != nil {
		return nil, fmt.Errorf("read notification: %w", err)
	}
	var raw map[string]jsontext.Value
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("%s is no JSON object: %w", *m.file, err)
	}
	for name, value := range raw {
		body[name] = value
	}
	for _, name := range []string{"to", "content"} {
		open(body, name)
	}
	return body, nil
}

// open makes a member that is an object one that can be added to. What is in it
// stays as it is written: large numbers, for one, would not survive decoding.
func open(body object, name string) {
	raw, ok := body[name].(jsontext.Value)
	if !ok {
		return
	}
	var members map[string]jsontext.Value
	if raw.Kind() != jsontext.KindBeginObject || json.Unmarshal(raw, &members) != nil {
		return
	}
	opened := object{}
	for name, value := range members {
		opened[name] = value
	}
	body[name] = opened
}

func (m *messageFlags) recipient(to object) error {
	devices := make([]object, 0, len(m.push))
	for _, d := range m.push {
		provider, token, ok := strings.Cut(d, ":")
		if !ok || provider != "fcm" && provider != "apns" || token == "" {
			return usagef("--to-push must be fcm:TOKEN or apns:TOKEN; a web push subscription goes into --file")
		}
		devices = append(devices, object{"provider": provider, "token": token})
	}
	if len(devices) > 0 {
		to["push"] = devices
	}
	set(to, "sms", *m.sms)
	set(to, "whatsapp", *m.whatsApp)
	set(to, "email", *m.email)
	switch {
	case *m.slack == "":
	case strings.HasPrefix(*m.slack, "https://") || strings.HasPrefix(*m.slack, "http://"):
		to["slack"] = object{"webhook_url": *m.slack}
	default:
		to["slack"] = object{"channel": *m.slack}
	}
	if *m.webhook != "" {
		to["webhook"] = object{"url": *m.webhook}
	}
	return nil
}

// steps adds the chain that the flags name.
func (m *messageFlags) steps(body object) error {
	if *m.chain == "" {
		if *m.within != "" {
			return usagef("--within needs --chain")
		}
		return nil
	}
	channels := strings.Split(*m.chain, ",")
	chain := make([]object, len(channels))
	for i, c := range channels {
		chain[i] = object{"channel": strings.TrimSpace(c)}
		if i < len(channels)-1 {
			set(chain[i], "within", *m.within)
		}
	}
	body["chain"] = chain
	return nil
}

func set(o object, name, value string) {
	if value != "" {
		o[name] = value
	}
}

// child returns a member that is an object, made where it is missing.
func child(o object, name string) object {
	c, ok := o[name].(object)
	if !ok {
		c = object{}
		if o[name] == nil {
			o[name] = c
		}
	}
	return c
}
