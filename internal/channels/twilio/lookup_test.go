package twilio

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	sender1    = "+15005550006"
	text       = "api: 3 of 5 pods are down"
	serviceSID = "MG0123456789abcdef0123456789abcdef"
)

// began is when the calls of these tests did, long enough ago to be told of.
var began = time.Now().Add(-time.Minute).Truncate(time.Second)

func wanted() Wanted {
	return Wanted{
		Channel: notify.SMS, Target: notify.Target{Phone: ana}, To: ana, From: sender1, Body: text, Began: began, Ended: began.Add(time.Second),
	}
}

// listed is a Message resource as the API lists it, created so long after the
// call began; change replaces parts of it.
func listed(sid string, after time.Duration, change ...string) string {
	m := fmt.Sprintf(`{"account_sid":"%s","api_version":"2010-04-01","body":"%s","date_created":"%s","date_sent":null,"date_updated":"%[3]s",
		"direction":"outbound-api","error_code":null,"error_message":null,"from":"%s","messaging_service_sid":null,"num_media":"0",
		"num_segments":"1","price":null,"price_unit":"USD","sid":"%s","status":"queued","to":"%s",
		"uri":"/2010-04-01/Accounts/x/Messages/x.json"}`,
		testSID, text, began.Add(after).UTC().Format(time.RFC1123Z), sender1, sid, ana)
	return strings.NewReplacer(change...).Replace(m)
}

func page(next string, messages ...string) string {
	return fmt.Sprintf(`{"first_page_uri":"/x","end":1,"page":0,"page_size":50,"next_page_uri":%s,"previous_page_uri":null,"messages":[%s]}`,
		next, strings.Join(messages, ","))
}

// lookUp asks a Twilio that gives one answer.
func lookUp(t *testing.T, w Wanted, status int, header http.Header, body string) channels.Sighting {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if got, want := r.Method+" "+r.URL.Path, "GET /2010-04-01/Accounts/"+testSID+"/Messages.json"; got != want || user != testSID || password != "t0k3n" {
			t.Errorf("call %s as %s", got, user)
		}
		if got, want := r.URL.Query().Encode(), "PageSize=50&To=%2B14155550100"; got != want {
			t.Errorf("query %s, want %s", got, want)
		}
		maps.Copy(w.Header(), header)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer srv.Close()
	c, err := NewClient(Account{AccountSID: testSID, AuthToken: secret.New("t0k3n"), BaseURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c.LookUp(t.Context(), w)
}

func TestLookUpFindsAMessageByWhatItSays(t *testing.T) {
	t.Parallel()
	ok := func(status notify.Status) []channels.Result {
		return []channels.Result{{Outcome: notify.Accepted, Status: status, MessageID: "SM1"}}
	}
	const status = `"status":"queued"`
	through := func(w *Wanted) { w.From, w.Service = "", serviceSID }
	earlier := listed("SM0", -time.Hour)
	for _, c := range []struct {
		name     string
		change   func(*Wanted)
		body     string
		messages []channels.Result
		complete bool
	}{
		{"queued", nil, page("null", listed("SM1", time.Second)), ok(notify.Sent), true},
		{"by a clock that is behind", nil, page("null", listed("SM1", -59*time.Second)), ok(notify.Sent), true},
		{"delivered", nil, page("null", listed("SM1", 0, status, `"status":"delivered"`)), ok(notify.Delivered), true},
		{"read", nil, page("null", listed("SM1", 0, status, `"status":"read"`)), ok(notify.Read), true},
		{"undelivered", nil, page("null", listed("SM1", 0, status, `"status":"undelivered"`, `"error_code":null`, `"error_code":30006`)), []channels.Result{
			{Outcome: notify.RecipientRejected, Code: "30006", MessageID: "SM1", Detail: "landline or unreachable carrier"},
		}, true},
		{"oldest first where there are several", nil, page("null", listed("SM2", 2*time.Second), listed("SM1", time.Second)), []channels.Result{
			channels.Ok("SM1"), channels.Ok("SM2"),
		}, true},
		{"with space lost at its end", func(w *Wanted) { w.Body += " \n" }, page("null", listed("SM1", 0)), ok(notify.Sent), true},
		{"through a service, before it picked a sender", through, page("null", listed("SM1", 0, `"from":"`+sender1+`"`, `"from":null`,
			`"messaging_service_sid":null`, `"messaging_service_sid":"`+serviceSID+`"`)), ok(notify.Sent), true},

		{"nothing", nil, page("null"), nil, true},
		{"nothing since", nil, page("null", earlier), nil, true},
		{"nothing since, on the first of many pages", nil, page(`"/x?Page=1"`, listed("SM2", time.Second, text, "other"), earlier), nil, true},
		{"nothing on a page that does not reach back", nil, page(`"/x?Page=1"`, listed("SM2", time.Second, text, "other")), nil, false},
		{"nothing on a page out of order", nil, page(`"/x?Page=1"`, earlier, listed("SM2", time.Second, text, "other"), earlier), nil, false},
		{"another text", nil, page("null", listed("SM2", 0, text, "other")), nil, true},
		{"another sender", nil, page("null", listed("SM2", 0, sender1, "+15005550007")), nil, true},
		{"another service", through, page("null", listed("SM2", 0)), nil, true},
		{"one received", nil, page("null", listed("SM2", 0, "outbound-api", "inbound")), nil, true},
		{"a text that a trial account put a notice before", nil, page("null", listed("SM1", 0, text, "Sent from a trial account - "+text)), nil, false},
		{"a text that smart encoding changed", func(w *Wanted) { w.Altered = true }, page("null", listed("SM1", 0, text, "other")), nil, false},
		{"a date that cannot be read", nil, page("null", listed("SM2", 0, "+0000", "")), nil, false},
		{"too soon", func(w *Wanted) { w.Ended = time.Now().Add(-29 * time.Second) }, page("null"), nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := wanted()
			if c.change != nil {
				c.change(&w)
			}
			got := lookUp(t, w, http.StatusOK, nil, c.body)
			want := channels.Sighting{
				Messages: c.messages, Complete: c.complete, Call: channels.Result{Outcome: notify.Accepted, HTTPStatus: http.StatusOK},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("sighting (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALookUpThatGetsNoListTellsNothing(t *testing.T) {
	t.Parallel()
	refusal := func(code int) string {
		return fmt.Sprintf(`{"code":%d,"message":"about %s","status":400,"more_info":"https://www.twilio.com/docs/errors/x"}`, code, ana)
	}
	for _, c := range []struct {
		name   string
		status int
		header http.Header
		body   string
		want   channels.Result
	}{
		{"429", 429, http.Header{"Retry-After": {"7"}}, refusal(20429), channels.Result{Outcome: notify.Throttled, RetryAfter: 7 * time.Second, Code: "20429"}},
		{"401", 401, nil, refusal(20003), channels.Result{Outcome: notify.MessageRejected, Code: "20003"}},
		{"503", 503, nil, "<html>", channels.Result{Outcome: notify.ProviderUnavailable}},
		{"302", 302, nil, "", channels.Result{Outcome: notify.ProviderUnavailable}},
		{"a page of another kind", 200, nil, "<html>" + ana, channels.Result{Outcome: notify.Unknown}},
		{"json of another kind", 200, nil, `{"data":[]}`, channels.Result{Outcome: notify.Unknown}},
		{"half a list", 200, http.Header{"Content-Length": {"1000"}}, page("null", listed("SM1", 0))[:400], channels.Result{Outcome: notify.Unknown}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := lookUp(t, wanted(), c.status, c.header, c.body)
			if got.Messages != nil || got.Complete {
				t.Errorf("sighting %+v", got)
			}
			c.want.HTTPStatus, c.want.Detail = c.status, got.Call.Detail
			if diff := cmp.Diff(c.want, got.Call); diff != "" {
				t.Errorf("call (-want +got):\n%s", diff)
			}
			if texts := got.Call.Detail + got.Call.Code; strings.Contains(texts, ana) || strings.Contains(texts, text) {
				t.Errorf("the call's texts disclose the message: %s", texts)
			}
		})
	}
}

func TestALookUpEndsWithItsContext(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer srv.Close()
	defer close(release)
	c, err := NewClient(Account{AccountSID: testSID, AuthToken: secret.New("t0k3n"), BaseURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	got := c.LookUp(ctx, wanted())
	if got.Complete || got.Messages != nil || !slices.Contains([]notify.Outcome{notify.Unknown, notify.ProviderUnavailable}, got.Call.Outcome) {
		t.Errorf("sighting %+v", got)
	}
	if strings.Contains(got.Call.Detail, ana) {
		t.Errorf("detail %q has the address", got.Call.Detail)
	}
}
