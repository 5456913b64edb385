package notify

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// content checks what the recipient is to be told, and that there is something
// to say on every channel of the chain, white space aside:
//   - push: a title, a body or data, its own or the common ones;
//   - sms: its body, or a common title or body;
//   - whatsapp: a body or a template, or a common title or body;
//   - email: a subject or the common title, on one line; and text or html, or the
//     common body;
//   - slack: text or blocks, or a common title or body;
//   - webhook: a payload, or a common title, body or data.
//
// Shapes: data and push.data are objects; slack.blocks is an array that is not
// empty; push.image and email.unsubscribe_url are URLs as in toRequest; push.ttl
// is 1 s to [MaxPushTTL]; a template has a name; email.subject has no control
// character; email.from, reply_to and unsubscribe_mailto are addresses;
// slack.thread is a Slack ts. The whole is at most [MaxContent] bytes,
// attachments aside; what a provider allows is less and is the provider's to
// check.
func (v *validator) content(c *Content, chain []Step) Content {
	if c == nil {
		v.add("/content", CodeRequired, "must say what the recipient is told")
		return Content{}
	}
	c.Data = v.object(c.Data, "/content/data")
	v.pushContent(c.Push)
	v.emailContent(c.Email)
	if c.WhatsApp != nil && c.WhatsApp.Template != nil {
		v.check(said(c.WhatsApp.Template.Name), "/content/whatsapp/template/name", CodeRequired, "must name an approved template")
	}
	if s := c.Slack; s != nil {
		s.Blocks = v.raw(s.Blocks, "/content/slack/blocks", jsontext.KindBeginArray, "must be an array of Block Kit blocks")
		v.check(s.Thread == "" || validSlackTS(s.Thread), "/content/slack/thread", CodeFormat,
			"must be the ts of a message, such as 1700000000.000100")
	}
	if w := c.Webhook; w != nil && len(w.Payload) > 0 {
		w.Payload = compact(w.Payload)
	}
	for _, channel := range Channels() {
		if reaches(chain, channel) {
			v.somethingToSay(c, channel)
		}
	}
	return *c
}

func (v *validator) pushContent(p *PushContent) {
	if p == nil {
		return
	}
	p.Data = v.object(p.Data, "/content/push/data")
	v.check(p.Image == "" || validURL(p.Image), "/content/push/image", CodeFormat, urlDetail)
	v.check(p.TTL == 0 || p.TTL.Std() >= MinWithin && p.TTL.Std() <= MaxPushTTL, "/content/push/ttl", CodeRange, "must be 1s to 672h")
}

func (v *validator) emailContent(e *EmailContent) {
	if e == nil {
		return
	}
	v.check(oneLine(e.Subject, 998), "/content/email/subject", CodeFormat, "must be at most 998 characters, without control characters")
	v.email(e.From, "/content/email/from")
	v.email(e.ReplyTo, "/content/email/reply_to")
	v.check(e.UnsubscribeURL == "" || validURL(e.UnsubscribeURL), "/content/email/unsubscribe_url", CodeFormat, urlDetail)
	v.check(e.UnsubscribeMailto == "" || validEmail(e.UnsubscribeMailto), "/content/email/unsubscribe_mailto", CodeFormat, emailDetail)
	v.check(len(e.Attachments) <= MaxAttachments, "/content/email/attachments", CodeLength, "must be at most 20 attachments")
	for i, a := range e.Attachments {
		pointer := at("/content/email/attachments", i)
		v.check(validFilename(a.Filename), at(pointer, "filename"), CodeFormat,
			"must be 1 to 255 characters, without slashes and control characters")
		v.check(a.ContentType == "" || validMediaType(a.ContentType), at(pointer, "content_type"), CodeFormat,
			"must be a media type such as application/pdf")
		v.check(len(a.Content) > 0, at(pointer, "content"), CodeRequired, "must not be empty")
	}
}

func (v *validator) somethingToSay(c *Content, channel Channel) {
	switch channel {
	case Push:
		title, body := c.PushText()
		v.check(said(title, body) || holds(c.PushData()), "/content/push", CodeRequired,
			"push needs a title, a body or data, here or in content")
	case SMS:
		v.check(said(c.SMSText()), "/content/sms/body", CodeRequired, "sms needs a body, or a title or body in content")
	case WhatsApp:
		v.check(c.WhatsApp != nil && c.WhatsApp.Template != nil || said(c.WhatsAppText()), "/content/whatsapp/body", CodeRequired,
			"whatsapp needs a body or a template, or a title or body in content")
	case Email:
		subject, text, html := c.EmailParts()
		v.check(said(subject), "/content/email/subject", CodeRequired, "email needs a subject, or a title in content")
		v.check(said(text, html), "/content/email/text", CodeRequired, "email needs text or html, or a body in content")
		v.check(!strings.ContainsAny(c.Title, "\r\n") || c.Email != nil && c.Email.Subject != "", "/content/title", CodeFormat,
			"must be one line where it serves as the subject of an email")
	case Slack:
		v.check(c.Slack != nil && holds(c.Slack.Blocks) || said(c.SlackText()), "/content/slack/text", CodeRequired,
			"slack needs text or blocks, or a title or body in content")
	case Webhook:
		v.check(c.Webhook != nil && len(c.Webhook.Payload) > 0 || said(c.Title, c.Body) || holds(c.Data), "/content/webhook/payload",
			CodeRequired, "webhook needs a payload, or a title, body or data in content")
	}
}

// said reports whether one of the texts is more than ASCII white space.
func said(texts ...string) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Trim(s, " \t\r\n") != "" })
}

// holds reports whether a compact object or array has something in it.
func holds(raw jsontext.Value) bool { return len(raw) > len("{}") }
