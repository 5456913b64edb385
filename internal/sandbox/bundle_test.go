package sandbox_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// patience is how long a test waits for what comes by itself.
const patience = 10 * time.Second

func start(t *testing.T, cfg sandbox.Config) *sandbox.Server {
	t.Helper()
	s, err := sandbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Start(t.Context())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// answer is what came back of a request.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("answer %q: %v", a.body, err)
	}
	return v
}

func do(t *testing.T, client *http.Client, method, target, body string, headers ...string) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	return answer{resp.StatusCode, resp.Header, string(b)}, nil
}

// send is do with a client of its own, for calls that are answered.
func send(t *testing.T, method, target, body string, headers ...string) answer {
	t.Helper()
	a, err := do(t, http.DefaultClient, method, target, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const twilioSID = "AC00000000000000000000000000000001"

// sms sends through Twilio; pairs are form fields that replace or add.
func sms(t *testing.T, s *sandbox.Server, to, body string, pairs ...string) answer {
	t.Helper()
	a, err := trySMS(t, s, to, body, pairs...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func trySMS(t *testing.T, s *sandbox.Server, to, body string, pairs ...string) (answer, error) {
	t.Helper()
	form := url.Values{"To": {to}, "From": {"+15005550006"}, "Body": {body}}
	if strings.HasPrefix(to, "whatsapp:") {
		form.Set("From", "whatsapp:+15005550006")
	}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		s.HTTPURL()+"/2010-04-01/Accounts/"+twilioSID+"/Messages.json", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(twilioSID, "secret-token")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

func lookUp(t *testing.T, s *sandbox.Server, pathAndQuery string) answer {
	t.Helper()
	base := strings.Replace(s.HTTPURL(), "http://", "http://"+twilioSID+":secret-token@", 1)
	return send(t, http.MethodGet, base+"/2010-04-01/Accounts/"+twilioSID+"/"+pathAndQuery, "")
}

func setReceipts(t *testing.T, s *sandbox.Server, r sandbox.Receipts) {
	t.Helper()
	if r.Repeat == 0 {
		r.Repeat = 1
	}
	if err := s.SetReceipts(r); err != nil {
		t.Fatal(err)
	}
}

func setFaults(t *testing.T, s *sandbox.Server, rules ...sandbox.Rule) {
	t.Helper()
	if err := s.SetFaults(rules...); err != nil {
		t.Fatal(err)
	}
}

// last is the newest recorded message.
func last(t *testing.T, s *sandbox.Server) sandbox.Message {
	t.Helper()
	all := s.Messages(sandbox.Filter{})
	if len(all) == 0 {
		t.Fatal("nothing was recorded")
	}
	return all[len(all)-1]
}

// callbackCall is one callback as a receiver got it.
type callbackCall struct {
	url    string
	header http.Header
	body   []byte
}

func (c callbackCall) form(t *testing.T) url.Values {
	t.Helper()
	v, err := url.ParseQuery(string(c.body))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// receiver takes callbacks.
type receiver struct {
	*httptest.Server
	calls chan callbackCall
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{calls: make(chan callbackCall, 100)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.calls <- callbackCall{"http://" + req.Host + req.URL.RequestURI(), req.Header, body}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) next(t *testing.T) callbackCall {
	t.Helper()
	select {
	case c := <-r.calls:
		return c
	case <-time.After(patience):
		t.Fatal("no callback came")
		return callbackCall{}
	}
}

func ms(n int) notify.Duration { return notify.Duration(time.Duration(n) * time.Millisecond) }
