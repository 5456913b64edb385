package httpapi_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

type suppressed struct {
	ID      string `json:"id"`
	Channel string `json:"channel"`
	Reason  string `json:"reason"`
	Source  string `json:"source"`
	Until   string `json:"until"`

	Action string `json:"action"`
	By     string `json:"by"`
	Why    string `json:"why"`
}

type suppressedPage struct {
	Items []suppressed `json:"items"`
	Next  string       `json:"next"`
}

// overSuppressions is an API over Postgres with keys of two projects and a key of
// the first that may only read.
func overSuppressions(t *testing.T) (s *service, db *store.Store, acme, other header) {
	t.Helper()
	s, db = overPostgres(t, func(c *httpapi.Config) { c.Suppressions = c.Store.(*store.Store) })
	return s, db, keyFor(t, db, "acme"), keyFor(t, db, "other")
}

func (p suppressedPage) ids() []string {
	out := []string{}
	for _, item := range p.Items {
		out = append(out, item.ID)
	}
	return out
}

const (
	barAna   = `{"channel": "email", "recipient": "Ana@Example.com", "why": "asked by phone"}`
	anaEntry = "email-373254ed911b8f57a7ae1fc3cf8f8bb1"
)

func TestAnOperatorSuppressesAnAddressAndLetsItBeWrittenToAgain(t *testing.T) {
	t.Parallel()
	s, db, acme, other := overSuppressions(t)
	list := func(query string, as header) suppressedPage {
		t.Helper()
		var page suppressedPage
		s.do(t, "GET", "/v1/suppressions?"+query, "", as).want(200).into(&page)
		return page
	}
	var made suppressedPage
	s.do(t, "POST", "/v1/suppressions", barAna, acme).want(200).into(&made)
	if len(made.Items) != 1 || made.Items[0].ID != anaEntry || made.Items[0].Reason != "manual" || !strings.HasPrefix(made.Items[0].Source, "test (") || made.Items[0].Until != "" {
		t.Fatalf("made %+v", made)
	}
	// A shorter one leaves it as it is.
	s.do(t, "POST", "/v1/suppressions", strings.Replace(barAna, `"why"`, `"until": "2999-01-01T00:00:00Z", "why"`, 1), acme).want(200).into(&made)
	if made.Items[0].Until != "" {
		t.Errorf("an entry for good became %+v", made.Items[0])
	}
	for query, want := range map[string][]string{
		"":                          {anaEntry},
		"recipient=ana@example.com": {anaEntry},
		"channel=email&recipient=ANA@EXAMPLE.COM&reason=manual&limit=1": {anaEntry},
		"recipient=bo@example.com":                                      {},
		"channel=sms":                                                   {},
		"reason=stop":                                                   {},
	} {
		if diff := cmp.Diff(want, list(query, acme).ids()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}

	// Nobody else sees it, or lifts it.
	if got := list("", other); len(got.Items) != 0 {
		t.Errorf("another project sees %+v", got)
	}
	lift := "/v1/suppressions/" + anaEntry + "?why=" + url.QueryEscape("asked again")
	s.do(t, "DELETE", lift, "", other).problem(404, "not_found")
	s.do(t, "DELETE", strings.Replace(lift, "email-", "sms-", 1), "", acme).problem(404, "not_found")
	if got := list("", acme); len(got.Items) != 1 {
		t.Errorf("after others lifted it: %+v", got)
	}

	if w := s.do(t, "DELETE", lift, "", acme).want(204); w.Body.Len() != 0 {
		t.Errorf("body %s", w.Body)
	}
	s.do(t, "DELETE", lift, "", acme).problem(404, "not_found")
	if got := list("", acme); len(got.Items) != 0 {
		t.Errorf("after it was lifted: %+v", got)
	}
	barred, err := db.Suppressed(t.Context(), "acme", []store.Address{{Channel: notify.Email, Hash: notify.Target{Email: &notify.EmailAddress{Address: "ana@example.com"}}.Hash(notify.Email)}})
	if err != nil || len(barred) != 0 {
		t.Errorf("%+v, %v", barred, err)
	}

	var history suppressedPage
	s.do(t, "GET", "/v1/suppressions/history?limit=1", "", acme).want(200).into(&history)
	if len(history.Items) != 1 || history.Items[0].Action != "lifted" || history.Items[0].Why != "asked again" ||
		!strings.HasPrefix(history.Items[0].By, "test (") || history.Items[0].ID != anaEntry || history.Next == "" {
		t.Errorf("history %+v", history)
	}
	next := "/v1/suppressions/history?limit=1&cursor=" + history.Next
	s.do(t, "GET", next, "", acme).want(200).into(&history)
	if len(history.Items) != 1 || history.Items[0].Action != "added" || history.Items[0].Why != "asked by phone" {
		t.Errorf("second page of the history %+v", history)
	}
	s.do(t, "GET", next, "", other).problem(422, "invalid_request")
	s.do(t, "GET", "/v1/suppressions/history?channel=email&recipient=ana@example.com", "", other).want(200).into(&history)
	if len(history.Items) != 0 {
		t.Errorf("another project sees the history %+v", history)
	}
}

func TestSuppressionsComeInPages(t *testing.T) {
	t.Parallel()
	s, _, acme, other := overSuppressions(t)
	for _, phone := range []string{"+14155550100", "+14155550101", "+14155550102", "+14155550103"} {
		s.do(t, "POST", "/v1/suppressions", `{"channel": "sms", "recipient": "`+phone+`", "why": "x"}`, acme).want(200)
	}
	// A token may be of either provider.
	var token suppressedPage
	s.do(t, "POST", "/v1/suppressions", `{"channel": "push", "recipient": "t0ken", "why": "x", "until": "2999-01-01T00:00:00Z"}`, acme).want(200).into(&token)
	if len(token.Items) != 2 || token.Items[0].Until != "2999-01-01T00:00:00Z" {
		t.Errorf("a token is %+v", token)
	}
	seen := map[string]bool{}
	query := "limit=2"
	for pages := 1; ; pages++ {
		var page suppressedPage
		s.do(t, "GET", "/v1/suppressions?"+query, "", acme).want(200).into(&page)
		for _, item := range page.Items {
			seen[item.ID] = true
		}
		if page.Next == "" {
			if pages != 3 || len(seen) != 6 {
				t.Errorf("%d entries in %d pages", len(seen), pages)
			}
			break
		}
		query = "limit=2&cursor=" + page.Next
	}
	s.do(t, "GET", "/v1/suppressions?"+query, "", other).problem(422, "invalid_request")
	s.do(t, "GET", "/v1/suppressions?channel=sms&"+query, "", acme).problem(422, "invalid_request")
}

func TestWhatIsWrongWithASuppressionIsSaidAllAtOnce(t *testing.T) {
	t.Parallel()
	s, db, acme, _ := overSuppressions(t)
	for body, want := range map[string][]string{
		`{}`: {"/channel choice", "/why format"},
		`{"channel": "voice", "recipient": "+14155550100", "why": "x"}`:                                               {"/channel choice"},
		`{"channel": "sms", "recipient": "4155550100", "why": "x"}`:                                                   {"/recipient format"},
		`{"channel": "sms", "recipient": "+1 415 555", "why": "x"}`:                                                   {"/recipient format"},
		`{"channel": "sms", "recipient": "", "why": "x"}`:                                                             {"/recipient format"},
		`{"channel": "email", "recipient": "ana@", "why": "x"}`:                                                       {"/recipient format"},
		`{"channel": "webhook", "recipient": "ftp://x", "why": "x"}`:                                                  {"/recipient format"},
		`{"channel": "webhook", "recipient": "https://", "why": "x"}`:                                                 {"/recipient format"},
		`{"channel": "push", "recipient": "a b", "why": " "}`:                                                         {"/recipient format", "/why format"},
		`{"channel": "slack", "recipient": "", "why": "x"}`:                                                           {"/recipient format"},
		`{"channel": "sms", "recipient": "+14155550100", "why": "` + strings.Repeat("x", 501) + `", "until": "soon"}`: {"/until format", "/why format"},
		`{"channel": "sms", "recipient": "+14155550100", "why": "x", "until": "2020-01-01T00:00:00Z"}`:                {"/until range"},
		`{"channel": "sms", "recipient": "+14155550100", "why": "x", "reason": "because"}`:                            {"/reason unknown_member"},
	} {
		p := s.do(t, "POST", "/v1/suppressions", body, acme).problem(422, "invalid_request")
		if diff := cmp.Diff(want, places(p)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	for query, want := range map[string]string{
		"channel=voice&limit=0":     "query.channel choice query.limit range",
		"recipient=ana":             "",
		"channel=sms&recipient=ana": "query.recipient format",
		"reason=Stop":               "query.reason format",
		"cursor=AAAA":               "query.cursor format",
		"status=sent":               "query.status unknown_member",
	} {
		if want == "" {
			s.do(t, "GET", "/v1/suppressions?"+query, "", acme).want(200) // a Slack channel, or a token
			continue
		}
		p := s.do(t, "GET", "/v1/suppressions?"+query, "", acme).problem(422, "invalid_request")
		if got := strings.Join(places(p), " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for target, want := range map[string]int{
		"/v1/suppressions/" + anaEntry:                                      422,
		"/v1/suppressions/" + anaEntry + "?why=+":                           422,
		"/v1/suppressions/" + anaEntry + "?why=" + strings.Repeat("x", 501): 422,
		"/v1/suppressions/email-1?why=x":                                    404,
		"/v1/suppressions/voice-373254ed911b8f57a7ae1fc3cf8f8bb1?why=x":     404,
		"/v1/suppressions/EMAIL-373254ED911B8F57A7AE1FC3CF8F8BB1?why=x":     404,
	} {
		code := map[int]string{422: "invalid_request", 404: "not_found"}[want]
		s.do(t, "DELETE", target, "", acme).problem(want, code)
	}
	reader, _, err := db.CreateKey(t.Context(), "acme", "reader", []string{"read"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	as := header{"Authorization", "Bearer " + reader}
	s.do(t, "GET", "/v1/suppressions", "", as).want(200)
	s.do(t, "POST", "/v1/suppressions", barAna, as).problem(403, "forbidden")
	s.do(t, "DELETE", "/v1/suppressions/"+anaEntry+"?why=x", "", as).problem(403, "forbidden")
	s.do(t, "GET", "/v1/suppressions/history", "", as).problem(403, "forbidden")
}

func TestAProcessWithoutSuppressionsSaysSo(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.do(t, "GET", "/v1/suppressions", "").problem(503, "unavailable")
}

func TestAPlanTellsWhichAddressesAreSuppressed(t *testing.T) {
	t.Parallel()
	s, _, acme, _ := overSuppressions(t)
	s.do(t, "POST", "/v1/suppressions", barAna, acme).want(200)
	s.do(t, "POST", "/v1/suppressions", `{"channel": "push", "recipient": "two", "why": "x", "until": "2999-01-01T00:00:00Z"}`, acme).want(200)
	const body = `{"to": {"push": [{"provider": "fcm", "token": "one"}, {"provider": "fcm", "token": "two"}], "email": "ana@EXAMPLE.com", "sms": "+14155550100"},
		"chain": [{"channel": "push"}, {"channel": "email"}, {"channel": "sms"}], "content": {"title": "t", "body": "b"}}`
	var plan struct {
		Steps []struct {
			Suppressed []map[string]any `json:"suppressed"`
		} `json:"steps"`
	}
	s.do(t, "POST", "/v1/notifications?plan=true", body, acme).want(200).into(&plan)
	got := [][]map[string]any{}
	for _, step := range plan.Steps {
		got = append(got, step.Suppressed)
	}
	want := [][]map[string]any{
		{{"target": 1.0, "reason": "manual", "until": "2999-01-01T00:00:00Z"}},
		{{"target": 0.0, "reason": "manual", "until": nil}},
		nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
