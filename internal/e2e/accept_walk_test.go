//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.yaml.in/yaml/v3"
)

// document is what the walk needs of the OpenAPI document.
type document struct {
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]object }
}

type operation struct {
	Security   []any
	Parameters []struct{ Name, In string }
	Body       struct {
		Content map[string]struct {
			Schema  object
			Example any
		}
	} `yaml:"requestBody"`
}

func readDocument(t *testing.T) *document {
	t.Helper()
	text, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc := &document{}
	if err := yaml.Unmarshal(text, doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// sample makes a value of a schema with all its members.
func (d *document) sample(r *rand.Rand, s object) any {
	if ref, ok := s["$ref"].(string); ok {
		return d.sample(r, d.Components.Schemas[ref[strings.LastIndexByte(ref, '/')+1:]])
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		if of, ok := s[key].([]any); ok && len(of) > 0 {
			return d.sample(r, of[r.IntN(len(of))].(object))
		}
	}
	for _, key := range []string{"examples", "enum"} {
		if of, ok := s[key].([]any); ok && len(of) > 0 {
			return of[r.IntN(len(of))]
		}
	}
	kind, _ := s["type"].(string)
	if of, ok := s["type"].([]any); ok {
		kind, _ = of[0].(string)
	}
	switch kind {
	case "object":
		out := object{}
		members, _ := s["properties"].(object)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			out[name] = d.sample(r, members[name].(object))
		}
		if more, ok := s["additionalProperties"].(object); ok {
			out["k"] = d.sample(r, more)
		}
		return out
	case "array":
		items, _ := s["items"].(object)
		return []any{d.sample(r, items)}
	case "integer", "number":
		return 1
	case "boolean":
		return true
	}
	switch s["format"] {
	case "date-time":
		return "2030-01-01T00:00:00Z"
	case "uuid":
		return nobody
	case "uri":
		return "https://example.com/x"
	}
	return "x"
}

const nobody = "0193a1b2-0000-7000-8000-000000000001"

// raw is JSON, or nearly, that no encoder would write.
type raw string

// hostile are values that fit nowhere, or just so.
var hostile = []any{
	nil, true, 0, -1, 1.5, raw("1e400"), raw("-1e-400"), raw("9223372036854775808"), raw("01"), "", " ", "x",
	raw(`"\u0000"`), raw("\"\x00\""), raw("\"\xff\xfe\""), raw(`"\ud800"`), raw(`"\u202e"`), "'; drop table x; --", "%s%n", "../../x",
	strings.Repeat("x", 70_000), strings.Repeat("é", 5_000),
	[]any{},
	object{},
	[]any{nil},
	object{"": nil},
	raw(strings.Repeat("[", 200) + strings.Repeat("]", 200)), raw(strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)),
	raw("[" + strings.Repeat("0,", 20_000) + "0]"), raw(`{"a":1,"a":2}`), "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2026-13-45T99:99:99Z",
	"-5s", "9999999h", "1e9s", "+1", "a@b", "http://[::1", "http://169.254.169.254/", "https://user:x@example.com", "javascript:x",
}

// spoil changes something in a value.
func spoil(r *rand.Rand, v any) any {
	switch v := v.(type) {
	case object:
		out := maps.Clone(v)
		names := slices.Sorted(maps.Keys(v))
		switch n := r.IntN(10); {
		case n == 0 || len(names) == 0:
			out[[]string{"colour", "", "\x00", "$ref", strings.Repeat("x", 1000)}[r.IntN(5)]] = hostile[r.IntN(len(hostile))]
		case n == 1:
			delete(out, names[r.IntN(len(names))])
		case n == 2:
			return hostile[r.IntN(len(hostile))]
		default:
			name := names[r.IntN(len(names))]
			out[name] = spoil(r, v[name])
		}
		return out
	case []any:
		if len(v) > 0 && r.IntN(3) > 0 {
			out := slices.Clone(v)
			i := r.IntN(len(v))
			out[i] = spoil(r, v[i])
			if r.IntN(5) == 0 {
				return slices.Repeat(out, 300)
			}
			return out
		}
	}
	return hostile[r.IntN(len(hostile))]
}

// write writes a value as JSON, with whatever is raw in it.
func write(t *testing.T, b *bytes.Buffer, v any) {
	t.Helper()
	list := func(open, end byte, n int, each func(i int)) {
		b.WriteByte(open)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			each(i)
		}
		b.WriteByte(end)
	}
	switch v := v.(type) {
	case raw:
		b.WriteString(string(v))
	case object:
		names := slices.Sorted(maps.Keys(v))
		list('{', '}', len(names), func(i int) {
			b.Write(encode(t, names[i]))
			b.WriteByte(':')
			write(t, b, v[names[i]])
		})
	case []any:
		list('[', ']', len(v), func(i int) { write(t, b, v[i]) })
	default:
		b.Write(encode(t, v))
	}
}

// malformed are bodies that are wrong for every operation that takes one.
func malformed() []string {
	return []string{
		"{", "}", "[]", "1", `"x"`, "\xff", "\x00", "\ufeff{", "{'a':1}", `{"a":"` + "\xff" + `"}`, `{"a":"\ud800"}`, `{"a":"` + "\x00" + `"}`,
		`{"a":1,"a":1}`, `{"colour":"red"}`, `{"":1}`, "{} {}", "{}x", strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 100_000),
		`{"a":"` + strings.Repeat("x", 1<<20) + `"}`, strings.Repeat(" ", 1<<20+1),
	}
}

// badText are values of parameters, escaped; none is the name of anything.
var badText = []string{
	"%00", "%FF%FE", "%F0%9F%92%A9", "-1", "0", "1e9", "NaN", "null", "%5B%5D", "%27%3B--", "..%2F..%2Fx", "%25s%25n", "x%0D%0Ay",
	"2026-13-45", "0193a1b2-0000-7000-8000-00000000000g", strings.Repeat("9", 3000), strings.Repeat("%C3%A9", 1000),
}

// visit is one request of the walk.
type visit struct {
	method, target string
	header         [2]string // beside what every request has
	body           []byte
	refused        bool // is wrong for certain
}

// walk makes requests and judges the answers.
type walk struct {
	n        *node
	visits   atomic.Int64
	refusals atomic.Int64
}

func (w *walk) visit(t *testing.T, v visit) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), v.method, w.n.url+v.target, bytes.NewReader(v.body))
	if err != nil {
		t.Errorf("%s %s: %v", v.method, v.target, err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+w.n.key)
	if len(v.body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if v.header[0] != "" {
		req.Header.Set(v.header[0], v.header[1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Errorf("%s: %v", v, err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	w.visits.Add(1)
	var p struct {
		Status int
		Code   string
		Title  string
	}
	switch {
	case err != nil, resp.StatusCode >= http.StatusInternalServerError:
		t.Errorf("%s is answered %d, %v: %.300s", v, resp.StatusCode, err, text)
	case resp.StatusCode >= http.StatusBadRequest:
		w.refusals.Add(1)
		if v.method == http.MethodHead {
			return
		}
		if err := json.Unmarshal(text, &p); err != nil || resp.Header.Get("Content-Type") != "application/problem+json" ||
			p.Status != resp.StatusCode || p.Code == "" || p.Title == "" || p.Status == http.StatusTooManyRequests {
			t.Errorf("%s is answered %d without a problem document that says why: %.300s", v, resp.StatusCode, text)
		}
	case v.refused:
		t.Errorf("%s is answered %d: %.300s", v, resp.StatusCode, text)
	case strings.Contains(v.target, "/batch") && bytes.Contains(text, []byte(`"status":5`)):
		t.Errorf("%s has a row that failed: %.1000s", v, text)
	}
}

// String names the request in messages.
func (v visit) String() string {
	return fmt.Sprintf("%s %.200s %.100q %.300q", v.method, v.target, v.header, v.body)
}

func TestWhateverABadRequestIsTheAnswerIsAProblemAndNever5xx(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.edit(t, func(file object) { // callbacks have no key, and every one of the walk's is refused
		file["http"].(object)["limits"].(object)["unauthenticated"] = object{"per_second": 1_000_000, "burst": 1_000_000}
	})
	n := c.serve(t, "--hold") // nothing is to be called
	const free = "1000000/s,1000000"
	n.key = c.makeKey(t, "walk", "send,read,admin", "--write", free, "--read", free, "--admin", free).Key
	created := func(path string, body object) string {
		got, err := n.call(t, http.MethodPost, path, "", encode(t, body))
		if err != nil || got.status/100 != 2 {
			t.Fatalf("POST %s: %d %s, %v", path, got.status, got.body, err)
		}
		var v struct{ ID string }
		got.decode(t, &v)
		return v.ID
	}
	// What is there lets a request come as far as it can.
	there := map[string]string{
		"/v1/keys/{id}":          created("/v1/keys", object{"name": "victim", "scopes": []string{"read"}}),
		"/v1/notifications/{id}": created("/v1/notifications", c.alone("sms", 1)),
		"/v1/webhooks/{id}":      created("/v1/webhooks", object{"url": "https://example.com/x"}),
	}
	doc := readDocument(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &walk{n: n}
	var all sync.WaitGroup
	operations := 0
	for i, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		operations += len(doc.Paths[path])
		all.Go(func() {
			for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				w.operation(t, r, doc, strings.ToUpper(method), path, there)
			}
		})
	}
	all.Wait()
	t.Logf("%d requests to %d operations, %d refused", w.visits.Load(), operations, w.refusals.Load())
	if operations < 30 || w.refusals.Load() < int64(operations)*10 {
		t.Error("that is too few to show anything")
	}
	n.await(t, "/readyz", http.StatusOK)
}

// operation tries an operation with everything that is wrong.
func (w *walk) operation(t *testing.T, r *rand.Rand, doc *document, method, path string, there map[string]string) {
	t.Helper()
	op := doc.Paths[path][strings.ToLower(method)]
	target := strings.NewReplacer("{channel}", "sms", "{account}", "twilio-main", "{delivery}", nobody).Replace(path)
	for prefix, id := range there {
		if rest, ok := strings.CutPrefix(target, prefix); ok {
			target = strings.TrimSuffix(prefix, "{id}") + id + rest
		}
	}
	for _, p := range op.Parameters {
		for _, bad := range badText {
			switch p.In {
			case "path":
				at := strings.ReplaceAll(path, "{"+p.Name+"}", bad)
				w.visit(t, visit{method: method, target: strings.NewReplacer("{id}", nobody, "{delivery}", nobody).Replace(at), refused: true})
			case "query":
				w.visit(t, visit{method: method, target: target + "?" + p.Name + "=" + bad})
			case "header":
				text, err := url.PathUnescape(bad)
				if err == nil && !strings.ContainsAny(text, "\x00\r\n") { // which this client does not send
					w.visit(t, visit{method: method, target: target, header: [2]string{p.Name, text}})
				}
			}
		}
		if p.In == "query" {
			w.visit(t, visit{method: method, target: target + "?" + p.Name + "=1&" + p.Name + "=1", refused: true})
		}
	}
	guarded := len(op.Security) > 0
	for _, query := range []string{"?colour=red", "?%00=1", "?%FF", "?limit=%zz", "?" + strings.Repeat("a=1&", 2000)} {
		w.visit(t, visit{method: method, target: target + query, refused: guarded})
	}
	w.visit(t, visit{method: method, target: target, header: [2]string{"Accept", "text/xml"}, refused: guarded})
	w.visit(t, visit{method: http.MethodPut, target: target, refused: true})
	w.bodies(t, r, doc, op, method, target)
}

// bodies tries an operation with bodies.
func (w *walk) bodies(t *testing.T, r *rand.Rand, doc *document, op operation, method, target string) {
	t.Helper()
	if len(op.Body.Content) == 0 {
		if method == http.MethodPost {
			for _, body := range malformed() {
				w.visit(t, visit{method: method, target: target, body: []byte(body)})
			}
		}
		return
	}
	rounds := 50
	if raceDetector {
		rounds = 10
	}
	for kind, content := range op.Body.Content {
		// Of a batch, every row is answered by itself.
		rows := kind == "application/x-ndjson"
		header := [2]string{"Content-Type", kind}
		for _, body := range malformed() {
			w.visit(t, visit{method: method, target: target, header: header, body: []byte(body), refused: !rows})
		}
		w.visit(t, visit{method: method, target: target, header: [2]string{"Content-Type", "text/plain"}, body: []byte("{}"), refused: true})
		w.visit(t, visit{method: method, target: target, header: [2]string{"Content-Encoding", "gzip"}, body: []byte("{}"), refused: true})
		for range rounds {
			v := doc.sample(r, content.Schema)
			if content.Example != nil && r.IntN(2) == 0 {
				v = content.Example
			}
			for range 1 + r.IntN(2) {
				v = spoil(r, v)
			}
			var b bytes.Buffer
			write(t, &b, v)
			w.visit(t, visit{method: method, target: target, header: header, body: b.Bytes()})
		}
	}
}
