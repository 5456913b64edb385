package httpapi

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const receiptsDescription = "Not for callers: the address is entered at the provider, or sent to it with each message. There is no API key. " +
	"A callback proves itself as the provider has it: a signature over the body (Twilio, Meta, SNS) or a secret of the account's (bounces). " +
	"`path` may have more than one segment; which there are depends on the account's provider.\n\n" +
	"An answer of 2xx means that what was reported has been kept. The same callback may come again, late, and in any order. " +
	"One that is not proven changes nothing; too many of them from one address are 429."

// documentReceipts describes the route of callbacks, which huma does not serve.
func documentReceipts(doc *huma.OpenAPI) {
	text := &huma.Schema{Type: huma.TypeString}
	parameters := []*huma.Param{
		{Name: "account", In: "path", Required: true, Schema: text, Example: "meta-main", Description: "The account's name in the configuration."},
		{Name: "path", In: "path", Required: true, Schema: text, Example: "ses", Description: "What the account's provider reads; see the documentation of channels."},
	}
	responses := func(taken map[string]string) map[string]*huma.Response {
		problem := map[string]*huma.MediaType{problemType: {Schema: schemaOf[Problem](doc.Components.Schemas)}}
		out := map[string]*huma.Response{}
		for status, description := range taken {
			out[status] = &huma.Response{Description: description}
		}
		for status, description := range map[string]string{
			"400": "The callback cannot be read.", "403": "It is not proven to be the provider's.", "404": "The account, or the path, is none.",
			"408": "The body took too long.", "413": "The body is larger than 4 MiB.", "429": "Too many callbacks from this address were refused.",
			"503": "It cannot be kept now; send it again.",
		} {
			out[status] = &huma.Response{Description: description, Content: problem}
		}
		return out
	}
	path := strings.TrimSuffix(receiptsPath, "/") + "/{account}/{path}"
	doc.AddOperation(&huma.Operation{
		OperationID: "verify-callback", Method: http.MethodGet, Path: path, Tags: []string{tagReceipts}, Parameters: parameters,
		Summary: "A provider's handshake before it sends callbacks", Description: receiptsDescription,
		Responses: responses(map[string]string{"200": "What the provider wants to hear."}),
	})
	doc.AddOperation(&huma.Operation{
		OperationID: "receive-callback", Method: http.MethodPost, Path: path, Tags: []string{tagReceipts}, Parameters: parameters,
		Summary: "A provider reports what became of messages", Description: receiptsDescription,
		RequestBody: &huma.RequestBody{Description: "As the provider writes it, at most 4 MiB.", Content: map[string]*huma.MediaType{
			"application/json": {Schema: &huma.Schema{}}, "application/x-www-form-urlencoded": {Schema: &huma.Schema{}},
			"message/rfc822": {Schema: text}, "text/plain": {Schema: text},
		}},
		Responses: responses(map[string]string{"200": "Taken; with what the provider wants to hear.", "204": "Taken."}),
	})
}
