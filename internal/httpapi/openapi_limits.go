package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// documentLimits says of every operation that needs a key what its limit adds to
// the answers.
func documentLimits(doc *huma.OpenAPI) {
	doc.Components.Headers = limitHeaders()
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op != nil && len(op.Security) > 0 {
				documentLimit(op)
			}
		}
	}
}

func documentLimit(op *huma.Operation) {
	if op.Responses["429"] == nil {
		op.Responses["429"] = &huma.Response{
			Description: http.StatusText(http.StatusTooManyRequests),
			Content:     op.Responses["401"].Content, // a problem
		}
	}
	for status, response := range op.Responses {
		success := status < "300"
		if !success && status != "429" {
			continue
		}
		if response.Headers == nil {
			response.Headers = map[string]*huma.Header{}
		}
		for name := range limitHeaders() {
			if name == "Retry-After" && success {
				continue
			}
			response.Headers[name] = &huma.Header{Ref: "#/components/headers/" + name}
		}
	}
}

func limitHeaders() map[string]*huma.Header {
	whole := &huma.Schema{Type: huma.TypeInteger}
	text := &huma.Schema{Type: huma.TypeString}
	const absent = " Absent where this process had to decide without the others."
	return map[string]*huma.Header{
		"X-RateLimit-Limit":     {Schema: whole, Example: 10000, Description: "Requests of this class that the API key may send at once after a rest." + absent},
		"X-RateLimit-Remaining": {Schema: whole, Example: 9999, Description: "How many of them are left." + absent},
		"X-RateLimit-Reset":     {Schema: whole, Example: 1, Description: "Seconds from now until all of them are there again; no point in time." + absent},
		"RateLimit-Policy": {Schema: text, Example: `"write";q=10000;w=10`, Description: "draft-ietf-httpapi-ratelimit-headers: the class of the route, " +
			"the burst, and the seconds until a spent burst is whole." + absent},
		"RateLimit":   {Schema: text, Example: `"write";r=9999;t=1`, Description: "draft-ietf-httpapi-ratelimit-headers: the class, what is left, and the seconds until the burst is whole." + absent},
		"Retry-After": {Schema: whole, Example: 1, Description: "Seconds after which the same request can succeed."},
	}
}
