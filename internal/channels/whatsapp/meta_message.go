package whatsapp

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

// maxMetaBody is how many characters Meta takes in a text's body.
const maxMetaBody = 4096

// defaultLanguage is that of a template whose message names none.
const defaultLanguage = "en_US"

var metaTemplateName = regexp.MustCompile(`^[a-z0-9_]{1,512}$`)

// metaMessage is the body of a request to /messages.
type metaMessage struct {
	MessagingProduct string `json:"messaging_product"`
	RecipientType    string `json:"recipient_type"`
	To               string `json:"to"`
	Type             string `json:"type"`
	// CallbackData comes back in each status of the message, unread by Meta; at most
	// 512 characters.
	CallbackData string        `json:"biz_opaque_callback_data,omitempty"`
	Text         *metaText     `json:"text,omitempty"`
	Template     *metaTemplate `json:"template,omitempty"`
}

type metaText struct {
	Body       string `json:"body"`
	PreviewURL bool   `json:"preview_url"`
}

type metaTemplate struct {
	Name       string          `json:"name"`
	Language   metaLanguage    `json:"language"`
	Components []metaComponent `json:"components,omitempty"`
}

type metaLanguage struct {
	Code string `json:"code"`
}

type metaComponent struct {
	Type       string          `json:"type"`
	Parameters []metaParameter `json:"parameters"`
}

type metaParameter struct {
	Type string `json:"type"`
	Name string `json:"parameter_name,omitempty"`
	Text string `json:"text"`
}

func (p *Meta) request(m *channels.Message) metaMessage {
	out := metaMessage{
		MessagingProduct: "whatsapp", RecipientType: "individual", To: m.To.Phone, CallbackData: m.Ref.String(),
	}
	t := template(m.Content)
	if t == nil {
		out.Type, out.Text = "text", &metaText{Body: m.Content.WhatsAppText(), PreviewURL: p.previewURL}
		return out
	}
	out.Type, out.Template = "template", &metaTemplate{Name: t.Name, Language: metaLanguage{Code: t.Language}}
	if t.Language == "" {
		out.Template.Language.Code = defaultLanguage
	}
	if parameters := metaParameters(t.Variables); len(parameters) > 0 {
		out.Template.Components = []metaComponent{{Type: "body", Parameters: parameters}}
	}
	return out
}

// metaParameters orders variables "1", "2", … by number and without names, and
// others by name.
func metaParameters(variables map[string]string) []metaParameter {
	if positional(variables) {
		out := make([]metaParameter, 0, len(variables))
		for i := range len(variables) {
			out = append(out, metaParameter{Type: "text", Text: variables[strconv.Itoa(i+1)]})
		}
		return out
	}
	out := make([]metaParameter, 0, len(variables))
	for name, text := range variables {
		out = append(out, metaParameter{Type: "text", Name: name, Text: text})
	}
	slices.SortFunc(out, func(a, b metaParameter) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// positional reports whether the variables are "1" to "n" without a gap.
func positional(variables map[string]string) bool {
	for i := range len(variables) {
		if _, ok := variables[strconv.Itoa(i+1)]; !ok {
			return false
		}
	}
	return true
}

// Check implements [channels.Checker]. Languages and the number of variables are
// known to Meta alone.
func (p *Meta) Check(m *channels.Message) error {
	t := template(m.Content)
	if t == nil {
		return checkText(m.Content, maxMetaBody)
	}
	if !metaTemplateName.MatchString(t.Name) {
		return &channels.CheckError{Field: templateName, Reason: `must be a template of meta: lower-case letters, digits and "_"`}
	}
	numbered := 0
	for name, text := range t.Variables {
		if _, err := strconv.Atoi(name); err == nil {
			numbered++
		}
		if text == "" {
			return &channels.CheckError{Field: templateVariables, Reason: "must not be empty texts"}
		}
	}
	if numbered > 0 && !positional(t.Variables) {
		return &channels.CheckError{Field: templateVariables, Reason: `must be numbered from "1" without a gap, or all have names`}
	}
	return nil
}
