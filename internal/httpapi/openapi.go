package httpapi

import (
	stdjson "encoding/json"
	"io"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
)

const jsonType = "application/json"

// OpenAPI returns the API's description, OpenAPI 3.1 in YAML. It needs no
// database and no configuration.
func OpenAPI() ([]byte, error) {
	return New(Config{}).huma.OpenAPI().YAML()
}

func humaConfig() huma.Config {
	c := huma.DefaultConfig("Dispatcher", "1.0.0")
	// The hook would add a $schema member and a Link header to every answer.
	c.CreateHooks = nil
	c.SchemasPath = ""
	// Answers may gain members in time; what requests may have is closed below.
	c.AllowAdditionalPropertiesByDefault = true
	c.DocsPath = "" // huma's page loads scripts from elsewhere
	format := huma.Format{
		Marshal:   func(w io.Writer, v any) error { return json.MarshalWrite(w, v, json.Deterministic(true)) },
		Unmarshal: func(b []byte, v any) error { return json.Unmarshal(b, v) },
	}
	c.Formats = map[string]huma.Format{"application/json": format, "json": format}
	c.Info.Description = description
	c.Tags = []*huma.Tag{
		{Name: tagNotifications, Description: "Send, follow and stop notifications."},
		{Name: tagEvents, Description: "Follow what happens, as a stream or by polling."},
		{Name: tagChannels, Description: "The health of channels and their accounts."},
		{Name: tagWebhooks, Description: "Endpoints of the project's own that are told what happens. Scope admin."},
		{Name: tagSuppressions, Description: "The addresses of the project that may not be written to."},
		{Name: tagKeys, Description: "API keys of the project. Scope admin."},
		{Name: tagReceipts, Description: "Where providers report what became of messages. Signed, without a key."},
		{Name: tagHealth, Description: "For load balancers and orchestrators. Without a key."},
	}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		bearer: {Type: "http", Scheme: "bearer", BearerFormat: "dsp_…", Description: "An API key in `Authorization: Bearer dsp_…`. Each is bound to a project and has scopes: send, read, admin."},
	}
	return c
}

const (
	tagNotifications = "notifications"
	tagEvents        = "events"
	tagChannels      = "channels"
	tagWebhooks      = "webhooks"
	tagSuppressions  = "suppressions"
	tagKeys          = "keys"
	tagReceipts      = "receipts"
	tagHealth        = "health"
)

const description = "Accepts a notification once and gets it to a person: over push, SMS, WhatsApp, email, Slack or a webhook, " +
	"falling back along the chain that the caller gave.\n\n" +
	"Times are RFC 3339 in UTC. Lists are newest first and come in pages: pass `next` of one page as `cursor` of the following. " +
	"Each API key has limits by class of route, write, read and admin: answers say how they stand, and one request too many is 429 `rate_limited`. " +
	"Unknown members and parameters are errors. Errors are problem documents (RFC 9457) with a stable `code`; " +
	"they name the place of a fault and never repeat what was sent."

// document describes the body of a POST. The handlers read it themselves: once,
// into what they need.
func document[T any](api huma.API, path, example string) {
	documentBody[T](api, api.OpenAPI().Paths[path].Post, example)
}

func documentBody[T any](api huma.API, op *huma.Operation, example string) {
	op.RequestBody = &huma.RequestBody{
		Required: true,
		Content: map[string]*huma.MediaType{jsonType: {
			Schema: schemaOf[T](api.OpenAPI().Components.Schemas), Example: stdjson.RawMessage(example),
		}},
	}
}

// closeRequests says of every object in a request that it has no other members.
func closeRequests(doc *huma.OpenAPI) {
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Post, item.Patch} {
			if op != nil && op.RequestBody != nil {
				closeSchema(doc.Components.Schemas, op.RequestBody.Content[jsonType].Schema)
			}
		}
	}
}

func closeSchema(r huma.Registry, s *huma.Schema) {
	if s == nil {
		return
	}
	if s.Ref != "" {
		s = r.SchemaFromRef(s.Ref)
	}
	if len(s.Properties) > 0 {
		s.AdditionalProperties = false
	}
	closeSchema(r, s.Items)
	for _, child := range s.OneOf {
		closeSchema(r, child)
	}
	for _, child := range s.Properties {
		closeSchema(r, child)
	}
}

func schemaOf[T any](r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[T](), true, "")
}

// exampleRequest is what the document shows for POST /v1/notifications.
const exampleRequest = `{
  "to": {
    "push": {"provider": "fcm", "token": "dGhlIHRva2VuIG9mIGEgZGV2aWNl"},
    "sms": "+14155550100",
    "whatsapp": "+14155550100",
    "email": "ana@example.com"
  },
  "chain": [
    {"channel": "push"},
    {"channel": "sms", "success": "delivered", "within": "90s"},
    {"channel": "whatsapp"},
    {"channel": "email"}
  ],
  "content": {
    "title": "Deploy failed",
    "body": "api: 3 of 5 pods are down",
    "email": {"subject": "[prod] deploy failed", "html": "<p>api: 3 of 5 pods are down</p>"}
  },
  "priority": "high",
  "reference": "incident-4711",
  "metadata": {"team": "core"}
}`
