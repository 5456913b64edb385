package sink_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/bench/sink"
)

func open(t *testing.T, hosts int) *sink.Sink {
	t.Helper()
	s, err := sink.Open(hosts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// post makes a POST as the service's clients do and returns status and body.
func post(t *testing.T, client *http.Client, url, id, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if id != "" {
		req.Header.Set("webhook-id", id)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func TestWebhooksAreCountedOnceByTheirIDs(t *testing.T) {
	t.Parallel()
	s := open(t, 3)
	if len(s.Hosts()) != 3 {
		t.Fatalf("hosts %v, want 3", s.Hosts())
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	const n = 200
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			id := uuid.NewSHA1(uuid.Nil, []byte{byte(i / 2)}).String() // each twice
			url := fmt.Sprintf("http://%s/w/%d", s.Hosts()[i%3], i)
			if status, _ := post(t, client, url, id, strings.Repeat("x", i*50)); status != http.StatusOK {
				t.Errorf("status %d", status)
			}
		})
	}
	wg.Wait()
	if got, want := s.Stats(), (sink.Stats{Calls: n, Distinct: n / 2}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	if len(s.Arrivals()) != 0 {
		t.Error("arrivals are kept although nobody asked for them")
	}
	s.Reset(false)
	if got := s.Stats(); got != (sink.Stats{}) {
		t.Errorf("stats %+v after a reset", got)
	}
}

func TestNumberedCallsAreKeptWithTheirInstant(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	s.Reset(true)
	client := &http.Client{}
	defer client.CloseIdleConnections()
	before := time.Now()
	post(t, client, "http://"+s.Hosts()[0]+"/w/7", uuid.NewString(), "{}")
	between := time.Now()
	post(t, client, "http://"+s.Hosts()[0]+"/slow/30/8", uuid.NewString(), "{}")
	if took := time.Since(between); took < 30*time.Millisecond {
		t.Errorf("the slow call was answered after %s, want 30 ms", took)
	}
	got := s.Arrivals()
	if len(got) != 2 || got[0].Number != 7 || got[1].Number != 8 {
		t.Fatalf("arrivals %+v", got)
	}
	if at := time.Unix(0, got[0].At); at.Before(before.Add(-time.Millisecond)) || at.After(between.Add(time.Millisecond)) {
		t.Errorf("arrived at %s, not between %s and %s", at, before, between)
	}
}

func TestTwiliosMessagesGetASIDAndAreCountedByNumber(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	client := &http.Client{}
	defer client.CloseIdleConnections()
	url := "http://" + s.Hosts()[0] + "/2010-04-01/Accounts/AC1/Messages.json"
	for _, body := range []string{"Body=12+is+up&To=1", "Body=12+is+up&To=1", "Body=13+is+up&To=1"} {
		if status, answer := post(t, client, url, "", body); status != http.StatusCreated || !strings.Contains(answer, `"sid":"SM0000`) {
			t.Errorf("%d %s", status, answer)
		}
	}
	const sid = "SM0000000000000000000000000000000c"
	resp, err := client.Get(strings.TrimSuffix(url, ".json") + "/" + sid + ".json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if answer, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(answer), `"sid":"`+sid+`","status":"sent"`) {
		t.Errorf("asked for a message: %s, %v", answer, err)
	}
	if got, want := s.Stats(), (sink.Stats{Calls: 3, Distinct: 2}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no id":         "POST /w/1 HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
		"no number":     "POST /w/x HTTP/1.1\r\nwebhook-id: " + uuid.NewString() + "\r\n\r\n",
		"another path":  "POST / HTTP/1.1\r\nwebhook-id: " + uuid.NewString() + "\r\n\r\n",
		"no text":       "POST /2010-04-01/x HTTP/1.1\r\nContent-Length: 4\r\n\r\nTo=1",
		"an empty id":   "POST /w/1 HTTP/1.1\r\nwebhook-id: \r\n\r\n",
		"no SID":        "GET /2010-04-01/Accounts/AC1/Messages.json HTTP/1.1\r\n\r\n",
		"chunks":        "POST /w/1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"a huge body":   "POST /w/1 HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
		"no header":     "POST /w/1 HTTP/1.1\r\nnonsense\r\n\r\n",
		"a slow odd id": "POST /slow/1/x HTTP/1.1\r\nwebhook-id: " + uuid.NewString() + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, 1)
			c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Hosts()[0])
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close() //nolint:errcheck // only read from
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
			if answer, _ := io.ReadAll(c); len(answer) > 0 {
				t.Errorf("answered %q", answer)
			}
			if got, want := s.Stats(), (sink.Stats{Refused: 1}); got != want {
				t.Errorf("stats %+v, want %+v", got, want)
			}
		})
	}
}

func TestMailsAreCountedByTheirMessageID(t *testing.T) {
	t.Parallel()
	s := open(t, 1)
	for _, id := range []string{"one.4711", "one.4711", uuid.NewString()} {
		letter := "From: a@example.com\r\nMessage-ID: <" + id + "@example.com>\r\n\r\n..dots\r\n" + strings.Repeat("line\r\n", 2000)
		if err := smtp.SendMail(s.SMTP(), nil, "a@example.com", []string{"b@example.com"}, []byte(letter)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := s.Stats(), (sink.Stats{Calls: 3, Distinct: 2}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	if err := smtp.SendMail(s.SMTP(), nil, "a@example.com", []string{"b@example.com"}, []byte("Subject: none\r\n\r\nx\r\n")); err == nil {
		t.Error("a mail without a Message-ID was taken")
	}
}

func TestCloseEndsWhoeverIsServed(t *testing.T) {
	t.Parallel()
	s, err := sink.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Hosts()[0]+"/slow/600000/1", http.NoBody)
		if err == nil {
			req.Header.Set("webhook-id", uuid.NewString())
			_, err = http.DefaultClient.Do(req)
		}
		done <- err
	}()
	s.Reset(true)
	for deadline := time.Now().Add(10 * time.Second); len(s.Arrivals()) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the call did not come")
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("a call was answered by a closed sink")
	}
}
