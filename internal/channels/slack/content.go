// Package slack sends notifications to Slack, either as a bot through the Web API
// (chat.postMessage) or through an incoming webhook.
package slack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const (
	// maxText is where chat.postMessage begins to truncate, in characters.
	maxText = 40_000
	// maxBlocks is the most blocks that one message may hold.
	maxBlocks = 50
)

// threadPattern is a message's ts: seconds and microseconds, as Slack prints it.
var threadPattern = regexp.MustCompile(`^[0-9]{1,12}\.[0-9]{1,9}$`)

// escaper makes a text literal: these three characters are all that Slack gives a
// meaning in its own syntax, such as <!channel>.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// text returns the message's text and whether it is plain. A text written for
// Slack is the caller's own mrkdwn. Title and body are written for every channel,
// so nothing in them may be taken for Slack's syntax.
func text(c *notify.Content) (s string, plain bool) {
	if c.Slack != nil && c.Slack.Text != "" {
		return strings.ToValidUTF8(c.Slack.Text, "\uFFFD"), false
	}
	return strings.ToValidUTF8(escaper.Replace(c.SlackText()), "\uFFFD"), true
}

func blocks(c *notify.Content) jsontext.Value {
	if c.Slack == nil || bytes.Equal(c.Slack.Blocks, []byte("null")) {
		return nil
	}
	return c.Slack.Blocks
}

func thread(c *notify.Content) string {
	if c.Slack == nil {
		return ""
	}
	return c.Slack.Thread
}

// checkContent applies the limits that both kinds of account share.
func checkContent(c *notify.Content) *channels.CheckError {
	s, _ := text(c)
	b := blocks(c)
	if s == "" && len(b) == 0 {
		return &channels.CheckError{Field: "/content/slack/text", Reason: "text or blocks must be given"}
	}
	if utf8.RuneCountInString(s) > maxText {
		field := "/content/slack/text"
		if c.Slack == nil || c.Slack.Text == "" {
			field = "/content/body"
		}
		return &channels.CheckError{Field: field, Reason: "must be at most 40000 characters"}
	}
	if len(b) == 0 {
		return nil
	}
	if err := checkBlocks(b); err != nil {
		return &channels.CheckError{Field: "/content/slack/blocks", Reason: err.Error()}
	}
	return nil
}

// checkBlocks reports what is wrong with the outline of b; what a block holds is
// Slack's to judge, so that new kinds of blocks need no change here.
func checkBlocks(b jsontext.Value) error {
	shape := errors.New("must be an array of objects, each with a type")
	dec := jsontext.NewDecoder(bytes.NewReader(b))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '[' {
		return shape
	}
	n := 0
	for dec.PeekKind() != ']' {
		var block struct {
			Type string `json:"type"`
		}
		if dec.PeekKind() != '{' || json.UnmarshalDecode(dec, &block) != nil || block.Type == "" {
			return shape
		}
		if n++; n > maxBlocks {
			return errors.New("must be at most 50 blocks")
		}
	}
	if n == 0 {
		return errors.New("must hold at least one block")
	}
	if _, err := dec.ReadToken(); err != nil {
		return shape
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return shape
	}
	return nil
}

// refuse is the result of a message that Check will not let pass.
func refuse(err *channels.CheckError) channels.Result {
	r := channels.Result{Outcome: notify.MessageRejected, Detail: err.Error()}
	if strings.HasPrefix(err.Field, "/to/") {
		r.Outcome = notify.RecipientRejected
	}
	return r
}

// orNil keeps a nil pointer from becoming an error that is not nil.
func orNil(err *channels.CheckError) error {
	if err == nil {
		return nil
	}
	return err
}

// unbuilt is the result of a request that could not be made. The text of err may
// hold the message, so only its type is told.
func unbuilt(err error) channels.Result {
	return channels.Result{
		Outcome: notify.MessageRejected,
		Detail:  fmt.Sprintf("request could not be made: %T", err),
	}
}
