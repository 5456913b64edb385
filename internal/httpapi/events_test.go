package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAStreamAndAPageTellTheSame(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	all, none := e.listen(t, "/v1/events", e.acme), e.listen(t, "/v1/events", e.other)
	all.beats(1)
	none.beats(1)
	first := e.post(t, e.acme)
	one := e.listen(t, "/v1/notifications/"+first+"/events?after=start", e.acme)
	e.do(t, "POST", "/v1/notifications/"+first+"/cancel", "", e.acme).want(200)
	second := e.post(t, e.acme)
	var streamed, single []shownEvent
	for range 3 {
		streamed = append(streamed, all.next())
	}
	for range 2 {
		single = append(single, one.next())
	}
	want := [][2]string{{first, "accepted"}, {first, "canceled"}, {second, "accepted"}}
	for i, v := range streamed {
		if v.NotificationID != want[i][0] || v.Type != want[i][1] || v.At.IsZero() || v.Step != nil || v.Final != (i == 1) || (v.Status == "canceled") != v.Final {
			t.Errorf("event %d is %+v, want %v", i, v, want[i])
		}
	}
	if diff := cmp.Diff(streamed, e.page(t, "/v1/events", e.acme).Items); diff != "" {
		t.Errorf("the page is another (-stream +page):\n%s", diff)
	}
	if diff := cmp.Diff(single, e.page(t, "/v1/notifications/"+first+"/events", e.acme).Items); diff != "" {
		t.Errorf("the notification's page is another (-stream +page):\n%s", diff)
	}
	if diff := cmp.Diff(streamed[:2], single); diff != "" {
		t.Error(diff)
	}
	// The server's deadlines are long over.
	none.beats(25)
	for _, target := range []string{"/v1/events", "/v1/events?after=now"} {
		if p := e.page(t, target, e.other); len(p.Items) != 0 || p.More {
			t.Errorf("another project sees %+v", p)
		}
	}
	e.do(t, "GET", "/v1/notifications/"+first+"/events", "", e.other).problem(404, "not_found")
	if resp := e.connect(t, "/v1/notifications/"+first+"/events", e.other); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a stream of another's notification: %d", resp.StatusCode)
	}
}

func TestPagesFollowEachOther(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	var want, got []string
	for range 5 {
		want = append(want, e.post(t, e.acme))
		e.post(t, e.other)
	}
	now := e.page(t, "/v1/events?after=now", e.acme)
	target := "/v1/events?limit=2"
	for {
		p := e.page(t, target, e.acme)
		for _, v := range p.Items {
			got = append(got, v.NotificationID)
		}
		target = "/v1/events?limit=2&after=" + p.Next
		if !p.More {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	last := e.post(t, e.acme)
	for _, from := range []string{target, "/v1/events?after=" + now.Next} {
		if p := e.page(t, from, e.acme); len(p.Items) != 1 || p.Items[0].NotificationID != last {
			t.Errorf("%s: %+v", from, p)
		}
	}
	e.do(t, "POST", "/v1/notifications/"+last+"/cancel", "", e.acme).want(200)
	for query, want := range map[string]int{"types=canceled": 1, "types=accepted,canceled": 7, "final=true": 1, "types=sent": 0} {
		if p := e.page(t, "/v1/events?"+query, e.acme); len(p.Items) != want {
			t.Errorf("%s finds %d events, want %d", query, len(p.Items), want)
		}
	}
}

func TestAStreamResumes(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	s := e.listen(t, "/v1/events", e.acme)
	s.beats(1)
	e.post(t, e.acme)
	s.next()
	_ = s.resp.Body.Close()
	missed := []string{e.post(t, e.acme), e.post(t, e.acme)}
	// A browser repeats the address it began with, and adds the header.
	again := e.listen(t, "/v1/events?after=start", e.acme, header{"Last-Event-ID", s.cursor})
	for i, id := range append(missed, e.post(t, e.acme)) {
		if v := again.next(); v.NotificationID != id {
			t.Errorf("event %d is of %s, want %s", i, v.NotificationID, id)
		}
	}
	// A heartbeat's id leads past what was not for the reader.
	quiet := e.listen(t, "/v1/events", e.other)
	quiet.beats(1)
	before := quiet.cursor
	e.post(t, e.acme)
	for quiet.cursor == before {
		quiet.beats(1)
	}
	if p := e.page(t, "/v1/events?after="+quiet.cursor, e.other); len(p.Items) != 0 || p.Next != quiet.cursor {
		t.Errorf("page %+v, want the cursor back", p)
	}
}

func TestCursorsThatCannotBeReadFrom(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	e.post(t, e.other)
	other := e.page(t, "/v1/events", e.other).Next
	e.post(t, e.acme)
	old := e.page(t, "/v1/events", e.acme).Next
	exec := func(sql string) {
		t.Helper()
		if _, err := e.db.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for name, cursor := range map[string]string{"another project's": other, "no cursor": "ana@example.com", "half a cursor": old[:10], "a changed one": old[:22] + "!"} {
		p := e.do(t, "GET", "/v1/events?after="+cursor, "", e.acme).problem(422, "invalid_request")
		if diff := cmp.Diff([]string{"query.after format"}, places(p)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		resp := e.connect(t, "/v1/events", e.acme, header{"Last-Event-ID", cursor})
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(string(body), `"header.Last-Event-ID"`) || strings.Contains(string(body), "ana@") {
			t.Errorf("%s in a stream: %d %s", name, resp.StatusCode, body)
		}
	}
	for query, place := range map[string]string{"limit=0": "query.limit range", "limit=1001": "query.limit range", "types=sent,nonsense": "query.types choice", "final=perhaps": "query.final format"} {
		p := e.do(t, "GET", "/v1/events?"+query, "", e.acme).problem(422, "invalid_request")
		if diff := cmp.Diff([]string{place}, places(p)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	exec("insert into dispatcher.event_horizons (project, id) values ('acme', 1000)")
	e.do(t, "GET", "/v1/events?after="+old, "", e.acme).problem(410, "cursor_expired")
	if resp := e.connect(t, "/v1/events", e.acme, header{"Last-Event-ID", old}); resp.StatusCode != http.StatusGone {
		t.Errorf("a stream from a cursor that has expired: %d", resp.StatusCode)
	}
	start := e.page(t, "/v1/events?after=start", e.acme)
	if len(start.Items) != 0 {
		t.Errorf("the start is before what was deleted: %+v", start)
	}
	e.page(t, "/v1/events?after="+other, e.other)
	exec("delete from dispatcher.event_horizons")
	p := e.do(t, "GET", "/v1/events?after="+start.Next, "", e.acme).problem(422, "invalid_request")
	if diff := cmp.Diff([]string{"query.after range"}, places(p)); diff != "" {
		t.Errorf("a cursor ahead of all events: %s", diff)
	}
}
