package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
)

// corpus is the list of bodies that every way in has to judge alike.
func corpus(tb testing.TB) []corpusRow {
	tb.Helper()
	text, err := os.ReadFile("../notify/testdata/requests.json")
	if err != nil {
		tb.Fatal(err)
	}
	var rows []corpusRow
	if err := json.Unmarshal(text, &rows); err != nil {
		tb.Fatal(err)
	}
	return rows
}

type corpusRow struct {
	Name     string
	Body     json.RawMessage
	Problems []string // pointer, space, code
}

// Accounts go by other names here than in the corpus, and sms-main is one of them.
func renamed(body json.RawMessage) string {
	return strings.NewReplacer(`"sms-main"`, `"twilio-main"`).Replace(string(body))
}

func TestPostJudgesTheCorpus(t *testing.T) {
	s := newService(t)
	for _, row := range corpus(t) {
		t.Run(row.Name, func(t *testing.T) {
			s.writes = 0
			a := s.do(t, "POST", "/v1/notifications", renamed(row.Body))
			if len(row.Problems) == 0 {
				a.want(202)
				return
			}
			p := a.problem(422, "invalid_request")
			slices.Sort(row.Problems)
			if diff := cmp.Diff(row.Problems, places(p)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if s.writes != 0 {
				t.Error("the store saw it")
			}
		})
	}
}

// Whatever is wrong with a request, the answer is a problem that names the place,
// repeats nothing, and nothing was written.
func TestBadRequestsAreToldWhereAndReachNobody(t *testing.T) {
	const secret = "ana.secret@example.com"
	post, get, key := "POST /v1/notifications", "GET /v1/notifications", "POST /v1/keys"
	tests := []struct {
		name, route, body string
		headers           []header
		status            int
		code              string
		want              []string // nil: no errors
	}{
		{"no body", post, "", nil, 400, "bad_request", []string{" malformed"}},
		{"no JSON", post, secret, nil, 400, "bad_request", []string{" malformed"}},
		{"a form", post, "to=" + secret, []header{{"Content-Type", "application/x-www-form-urlencoded"}}, 415, "unsupported_media_type", nil},
		{"another charset", post, good, []header{{"Content-Type", "application/json; charset=latin1"}}, 415, "unsupported_media_type", nil},
		{"a Content-Type that is none", post, good, []header{{"Content-Type", "json; ;"}}, 415, "unsupported_media_type", nil},
		{"a compressed body", post, good, []header{{"Content-Encoding", "gzip"}}, 415, "unsupported_media_type", nil},
		{"a member twice", post, `{"to":{"sms":"1","sms":"` + secret + `"}}`, nil, 400, "bad_request", []string{"/to/sms duplicate_member"}},
		{"a deep body", post, `{"metadata":` + strings.Repeat("[", 40), nil, 400, "bad_request", []string{" too_deep"}},
		{"an unknown member", post, `{"` + secret + `":1}`, nil, 422, "invalid_request", []string{" unknown_member"}},
		{"a wrong address", post, `{"to":{"sms":"` + secret + `"},"content":{"body":"` + secret + `"}}`, nil, 422, "invalid_request", []string{"/to/sms format"}},
		{"an answer in XML", post, good, []header{{"Accept", "text/xml"}}, 406, "not_acceptable", nil},
		{"no JSON in answer", post, good, []header{{"Accept", "application/json;q=0, text/html"}}, 406, "not_acceptable", nil},
		{"an unknown parameter", post + "?dry_run=1", good, nil, 422, "invalid_request", []string{"query.dry_run unknown_member"}},
		{"an address for a parameter", get + "?" + secret, "", nil, 422, "invalid_request", []string{"query unknown_member"}},
		{"a query that is none", get + "?limit=%zz", "", nil, 400, "bad_request", nil},
		{"a parameter twice", get + "?limit=1&limit=2", "", nil, 422, "invalid_request", []string{"query.limit duplicate"}},
		{"a limit that is no number", get + "?limit=" + secret, "", nil, 422, "invalid_request", []string{"query.limit format"}},
		{"a limit out of bounds", get + "?limit=0", "", nil, 422, "invalid_request", []string{"query.limit range"}},
		{"a limit out of bounds", get + "?limit=101", "", nil, 422, "invalid_request", []string{"query.limit range"}},
		{
			"filters that are none", get + "?status=" + secret + "&channel=" + secret + "&created_after=" + secret + "&created_before=2026-01-01&cursor=" + secret, "", nil,
			422, "invalid_request",
			[]string{"query.channel choice", "query.created_after format", "query.created_before format", "query.cursor format", "query.status choice"},
		},
		{"a reference that is no text", get + "?reference=%ff", "", nil, 422, "invalid_request", []string{"query.reference format"}},
		{"a reference with U+0000", get + "?reference=%00", "", nil, 422, "invalid_request", []string{"query.reference format"}},
		{"an address the channel cannot have", get + "?channel=sms&recipient=" + secret, "", nil, 422, "invalid_request", []string{"query.recipient format"}},
		{"a key without anything", key, "{}", nil, 422, "invalid_request", []string{"/name format", "/scopes choice"}},
		{"a key with other scopes", key, `{"name":"n","scopes":["send","` + secret + `"]}`, nil, 422, "invalid_request", []string{"/scopes choice"}},
		{"a key with a scope twice", key, `{"name":"n","scopes":["send","send"]}`, nil, 422, "invalid_request", []string{"/scopes choice"}},
		{"a key with a long name", key, `{"name":"` + strings.Repeat("n", 101) + `","scopes":["send"]}`, nil, 422, "invalid_request", []string{"/name format"}},
		{"a key that has expired", key, `{"name":"n","scopes":["send"],"expires_at":"2026-12-01T12:00:00Z"}`, nil, 422, "invalid_request", []string{"/expires_at range"}},
		{"a key that expires sometime", key, `{"name":"n","scopes":["send"],"expires_at":"` + secret + `"}`, nil, 422, "invalid_request", []string{"/expires_at format"}},
		{"a key with a project", key, `{"name":"n","scopes":["send"],"project":"other"}`, nil, 422, "invalid_request", []string{"/project unknown_member"}},
		{"a key that is not there", "DELETE /v1/keys/0193a1b2-0000-7000-8000-000000000001", "", nil, 404, "not_found", nil},
		{"an id that is none", "DELETE /v1/keys/" + secret, "", nil, 404, "not_found", nil},
		{"a path that is none", "GET /v2/" + secret, "", nil, 404, "not_found", nil},
		{"a method that is none", "PUT /v1/notifications", good, nil, 405, "method_not_allowed", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newService(t)
			method, target, _ := strings.Cut(tt.route, " ")
			a := s.do(t, method, target, tt.body, tt.headers...)
			p := a.problem(tt.status, tt.code)
			want := tt.want
			if want == nil {
				want = []string{}
			}
			if diff := cmp.Diff(want, places(p)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if s.writes != 0 && tt.status != 404 || len(s.filters) != 0 {
				t.Error("the store was asked")
			}
			if said := a.Body.String() + fmt.Sprint(a.Header()) + s.log.String(); strings.Contains(said, secret) {
				t.Errorf("what was sent is repeated: %s", said)
			}
		})
	}
}

// route is an operation of the OpenAPI document.
type route struct {
	method, target string
	scope          string
}

func routes(tb testing.TB) []route {
	tb.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			Security []map[string][]string
		}
	}
	s := newService(tb)
	if err := json.Unmarshal(s.do(tb, "GET", "/openapi.json", "").want(200).Body.Bytes(), &doc); err != nil {
		tb.Fatal(err)
	}
	var out []route
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for method, op := range doc.Paths[path] {
			r := route{method: strings.ToUpper(method), target: strings.ReplaceAll(path, "{id}", "0193a1b2-0000-7000-8000-000000000001")}
			if len(op.Security) > 0 {
				r.scope = op.Security[0]["bearer"][0]
			}
			out = append(out, r)
		}
	}
	if len(out) < 10 {
		tb.Fatalf("only %d routes", len(out))
	}
	return out
}

func TestEveryRouteNeedsAKeyWithItsScope(t *testing.T) {
	open := 0
	for _, r := range routes(t) {
		if r.scope == "" {
			open++
			if !strings.HasSuffix(r.target, "z") && !strings.HasPrefix(r.target, "/v1/receipts/") {
				t.Errorf("%s %s needs no key", r.method, r.target)
			}
			continue
		}
		t.Run(r.method+" "+r.target, func(t *testing.T) {
			s := newService(t)
			for _, auth := range []string{"", "Bearer", "Bearer dsp_nobody", "Basic ZHNwX2FsbA==", "dsp_all", "Bearer " + strings.Repeat("x", 300)} {
				a := s.do(t, r.method, r.target, "", header{"Authorization", auth})
				a.problem(401, "unauthorized")
				if got := a.Header().Get("WWW-Authenticate"); !strings.HasPrefix(got, `Bearer realm="dispatcher"`) {
					t.Errorf("WWW-Authenticate %q", got)
				}
			}
			for _, scope := range []string{"send", "read", "admin"} {
				a := s.do(t, r.method, r.target, "", header{"Authorization", "bearer dsp_" + scope})
				if scope != r.scope {
					a.problem(403, "forbidden")
				} else if a.Code == 401 || a.Code == 403 {
					t.Errorf("scope %s is refused with %d", scope, a.Code)
				}
			}
		})
	}
	if open != 4 {
		t.Errorf("%d routes without a key, want 4", open)
	}
}

func TestOtherMethodsAreToldWhichThereAre(t *testing.T) {
	s := newService(t)
	a := s.do(t, "PATCH", "/v1/notifications", "")
	a.problem(405, "method_not_allowed")
	if got := a.Header().Get("Allow"); got != "GET, HEAD, POST" {
		t.Errorf("Allow %q", got)
	}
	a = s.do(t, "GET", "/v1/keys/x", "")
	a.problem(405, "method_not_allowed")
	if got := a.Header().Get("Allow"); got != "PATCH, DELETE" {
		t.Errorf("Allow %q", got)
	}
	s.do(t, "GET", "/", "").problem(404, "not_found")
	s.do(t, "DELETE", "/nowhere", "").problem(404, "not_found")
}

func TestBodiesAreBounded(t *testing.T) {
	s := newService(t, func(c *httpapi.Config) { c.MaxBody = 1000 })
	fits := strings.Replace(good, "{", "{"+strings.Repeat(" ", 1000-len(good)), 1)
	s.do(t, "POST", "/v1/notifications", fits).want(202)
	a := s.do(t, "POST", "/v1/notifications", fits+" ")
	a.problem(http.StatusRequestEntityTooLarge, "body_too_large")
	if s.writes != 1 {
		t.Errorf("%d writes, want 1", s.writes)
	}
}

// FuzzPost: whatever the body, the answer is 202 or a problem of the caller's.
func FuzzPost(f *testing.F) {
	for _, row := range corpus(f) {
		if len(row.Body) < 2000 {
			f.Add([]byte(row.Body), "k")
		}
	}
	s := newService(f)
	f.Fuzz(func(t *testing.T, body []byte, key string) {
		s.fake.accepted = nil
		a := s.do(t, "POST", "/v1/notifications", string(body), header{"Idempotency-Key", key})
		if a.Code != 202 && (a.Code < 400 || a.Code > 499) {
			t.Fatalf("status %d for %q: %s", a.Code, body, a.Body)
		}
		if a.Code != 202 && a.Header().Get("Content-Type") != "application/problem+json" {
			t.Fatalf("%d is no problem document: %s", a.Code, a.Body)
		}
	})
}
