//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// contract is the API's description.
type contract struct {
	paths    map[string]map[string]any
	compiler *jsonschema.Compiler
	mu       sync.Mutex // of the compiler
}

const contractURL = "file:///openapi.json"

func readContract(t *testing.T) *contract {
	t.Helper()
	text, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	// The compiler wants the types of JSON.
	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(encode(t, doc)))
	if err != nil {
		t.Fatal(err)
	}
	c := &contract{paths: map[string]map[string]any{}, compiler: jsonschema.NewCompiler()}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	closeObjects(plain)
	if err := c.compiler.AddResource(contractURL, plain); err != nil {
		t.Fatal(err)
	}
	for path, operations := range doc["paths"].(map[string]any) {
		c.paths[path] = operations.(map[string]any)
	}
	return c
}

// closeObjects makes a member that no schema has a fault: the description leaves
// answers open, so that clients take those of a later version.
func closeObjects(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["properties"].(map[string]any); ok && v["additionalProperties"] == true {
			v["additionalProperties"] = false
		}
		for _, below := range v {
			closeObjects(below)
		}
	case []any:
		for _, below := range v {
			closeObjects(below)
		}
	}
}

// fits reports how a value departs from the schema at a pointer.
func (c *contract) fits(pointer string, value []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return err
	}
	c.mu.Lock()
	schema, err := c.compiler.Compile(contractURL + "#" + pointer)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

// route returns the description's path for a request's, where it has one.
func (c *contract) route(path string) (string, bool) {
	if _, ok := c.paths[path]; ok {
		return path, true
	}
	parts := strings.Split(path, "/")
	for pattern := range c.paths {
		names := strings.Split(pattern, "/")
		same := len(names) == len(parts)
		for i := 0; same && i < len(parts); i++ {
			same = names[i] == parts[i] || strings.HasPrefix(names[i], "{") && c.paths[strings.Join(parts, "/")] == nil
		}
		if same {
			return pattern, true
		}
	}
	return "", false
}

// answers reports how an answer departs from what the description says of it.
func (c *contract) answers(method, path string, status int, contentType string, body []byte) error {
	route, ok := c.route(path)
	if !ok {
		return nil // beside the API: /readyz, /metrics, the pages for people
	}
	operation, ok := c.paths[route][strings.ToLower(method)].(map[string]any)
	if !ok {
		return fmt.Errorf("%s has no %s", route, method)
	}
	responses, _ := operation["responses"].(map[string]any)
	code := strconv.Itoa(status)
	response, ok := responses[code].(map[string]any)
	if !ok {
		return fmt.Errorf("%s %s does not answer %s", method, route, code)
	}
	kind, _, _ := mime.ParseMediaType(contentType)
	content, _ := response["content"].(map[string]any)
	media, ok := content[kind].(map[string]any)
	if !ok {
		if len(body) == 0 && len(content) == 0 {
			return nil
		}
		return fmt.Errorf("%s %s does not answer %s as %q", method, route, code, contentType)
	}
	if _, ok := media["schema"]; !ok || !strings.HasSuffix(kind, "json") {
		return nil // a stream, whose lines are compared with what the document shows
	}
	escaped := strings.NewReplacer("~", "~0", "/", "~1")
	pointer := strings.Join([]string{
		"", "paths", escaped.Replace(route), strings.ToLower(method), "responses", code, "content", escaped.Replace(kind), "schema",
	}, "/")
	values := [][]byte{body}
	if strings.HasSuffix(kind, "ndjson") {
		values = bytes.Split(bytes.TrimSpace(body), []byte("\n"))
	}
	for _, value := range values {
		if err := c.fits(pointer, value); err != nil {
			return fmt.Errorf("%s %s answers %s with what does not fit its schema: %w: %s", method, route, code, err, value)
		}
	}
	return nil
}

// witness stands before the service and sees what the documents' commands are
// answered, whichever program makes the call.
type witness struct {
	url string

	mu       sync.Mutex
	faults   []error // departures from the description
	refusals []int   // statuses from 400
}

func newWitness(t *testing.T, service string, c *contract) *witness {
	t.Helper()
	to, err := url.Parse(service)
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			kind := r.Header.Get("Content-Type")
			var body []byte
			if strings.Contains(kind, "json") {
				var err error
				if body, err = io.ReadAll(r.Body); err != nil {
					return err
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			err := c.answers(r.Request.Method, r.Request.URL.Path, r.StatusCode, kind, body)
			w.mu.Lock()
			defer w.mu.Unlock()
			if err != nil {
				w.faults = append(w.faults, err)
			}
			if r.StatusCode >= http.StatusBadRequest {
				w.refusals = append(w.refusals, r.StatusCode)
			}
			return nil
		},
		ErrorLog: log.New(io.Discard, "", 0), // of streams that are interrupted
	})
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// saw returns what was seen since the last call.
func (w *witness) saw() (faults []error, refusals []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	faults, refusals = w.faults, w.refusals
	w.faults, w.refusals = nil, nil
	return faults, refusals
}

func TestTheWitnessSeesAnswersThatTheDescriptionDoesNotHave(t *testing.T) {
	t.Parallel()
	c := readContract(t)
	const path, kind = "/v1/notifications/0193a1b2-0000-7000-8000-000000000001/cancel", "application/json"
	for _, test := range []struct {
		name, method, path string
		status             int
		kind, body         string
		fine               bool
	}{
		{"as described", "POST", path, 200, kind, `{"result":"canceled"}`, true},
		{"another value", "POST", path, 200, kind, `{"result":"gone"}`, false},
		{"another member", "POST", path, 200, kind, `{"result":"canceled","colour":"red"}`, false},
		{"no member", "POST", path, 200, kind, `{}`, false},
		{"another status", "POST", path, 218, kind, `{"result":"canceled"}`, false},
		{"another type", "POST", path, 200, "text/html", "<p>", false},
		{"another method", "DELETE", path, 200, kind, `{"result":"canceled"}`, false},
		{"an instant that is none", "GET", path[:len(path)-len("cancel")] + "events", 200, kind, `{"items":[{"at":"soon"}],"next":"A","more":false}`, false},
		{"lines", "POST", "/v1/notifications/batch", 200, "application/x-ndjson", `{"index":0,"status":202}` + "\n" + `{"index":1,"status":429}` + "\n", true},
		{"a line that is wrong", "POST", "/v1/notifications/batch", 200, "application/x-ndjson", `{"index":0,"status":202}` + "\n" + `{"status":429}`, false},
		{"beside the API", "GET", "/docs", 200, "text/html", "<p>", true},
	} {
		if err := c.answers(test.method, test.path, test.status, test.kind, []byte(test.body)); (err == nil) != test.fine {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if _, err := json.Marshal(c.paths); err != nil || len(c.paths) < 20 {
		t.Errorf("the description has %d paths, %v", len(c.paths), err)
	}
}
