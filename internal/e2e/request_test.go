//go:build unix

package e2e_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestBadRequestsAreRefusedByNameAndStoreNothing(t *testing.T) { //nolint:tparallel // they share what must stay empty
	t.Parallel()
	c := newCluster(t)
	n := c.serve(t)
	reader := run(t, command{args: []string{"keys", "create", "--scopes", "read"}, env: c.env()})
	reader.want(t, 0)

	good := `{"to":{"sms":"+14155550100"},"chain":[{"channel":"sms"}],"content":{"body":"x"}}`
	tests := []struct {
		name, body string
		key        string
		status     int
		code       string
		pointer    string // of the field at fault
	}{
		{"unknown field", `{"to":{"sms":"+14155550100"},"content":{"body":"x"},"colour":"red"}`, c.key, 422, "invalid_request", "/colour"},
		{"unknown field deep inside", `{"to":{"sms":"+14155550100"},"content":{"body":"x","sms":{"bdy":"y"}}}`, c.key, 422, "invalid_request", "/content/sms/bdy"},
		{"number without its plus", `{"to":{"sms":"4155550100"},"content":{"body":"x"}}`, c.key, 422, "invalid_request", "/to/sms"},
		{"number with letters", `{"to":{"sms":"+1415CALLME"},"content":{"body":"x"}}`, c.key, 422, "invalid_request", "/to/sms"},
		{
			"step without an address", `{"to":{"sms":"+14155550100"},"chain":[{"channel":"sms"},{"channel":"email"}],"content":{"title":"t","body":"x"}}`,
			c.key, 422, "invalid_request", "/to/email",
		},
		{
			"unknown channel", `{"to":{"sms":"+14155550100"},"chain":[{"channel":"pigeon"}],"content":{"body":"x"}}`,
			c.key, 422, "invalid_request", "/chain/0/channel",
		},
		{"no content", `{"to":{"sms":"+14155550100"}}`, c.key, 422, "invalid_request", "/content"},
		{"no recipient", `{"content":{"body":"x"}}`, c.key, 422, "invalid_request", "/to"},
		{"half a body", `{"to":{"sms":"+14155550100"},`, c.key, 400, "bad_request", ""},
		{"2 MB", `{"content":{"body":"` + strings.Repeat("x", 2<<20) + `"}}`, c.key, 413, "body_too_large", ""},
		{"no key", good, "", 401, "unauthorized", ""},
		{"a key that is none", good, "dsp_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 401, "unauthorized", ""},
		{"a key that may only read", good, strings.TrimSpace(reader.stdout), 403, "forbidden", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			as := *n
			as.key = test.key
			got, err := as.call(t, http.MethodPost, "/v1/notifications", "key-of-"+strings.ReplaceAll(test.name, " ", "-"), []byte(test.body))
			if err != nil {
				t.Fatal(err)
			}
			if got.status != test.status || got.header.Get("Content-Type") != "application/problem+json" {
				t.Fatalf("the answer is %d, %s, want %d: %s", got.status, got.header.Get("Content-Type"), test.status, got.body)
			}
			var problem struct {
				Status int
				Code   string
				Errors []struct{ Pointer string }
			}
			got.decode(t, &problem)
			if problem.Status != test.status || problem.Code != test.code {
				t.Errorf("the problem is %d %s, want %s", problem.Status, problem.Code, test.code)
			}
			var pointers []string
			for _, e := range problem.Errors {
				pointers = append(pointers, e.Pointer)
			}
			if named := strings.Join(pointers, " "); test.pointer != "" && named != test.pointer {
				t.Errorf("it names %q, want %q: %s", named, test.pointer, got.body)
			}
		})
	}
	for _, table := range []string{"notifications", "deliveries", "events", "idempotency_keys", "river_job"} {
		if rows := c.count(t, "select count(*) from dispatcher."+table); rows != 0 {
			t.Errorf("%s has %d rows", table, rows)
		}
	}
	// That the tables can be counted is shown by one that is fine.
	n.post(t, object{"to": object{"sms": "+14155550100"}, "content": object{"body": "x"}})
	if rows := c.count(t, "select count(*) from dispatcher.notifications"); rows != 1 {
		t.Errorf("a good request stored %d rows", rows)
	}
}

// count returns the one number of a query.
func (c *cluster) count(t *testing.T, sql string, args ...any) int {
	t.Helper()
	var n int
	if err := c.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}
