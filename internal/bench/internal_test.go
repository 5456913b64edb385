//go:build unix

package bench

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestQuantilesAndMedians(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		if got := quantile(hundred, q); got != want {
			t.Errorf("quantile %v of 1 to 100 is %v, want %v", q, got, want)
		}
	}
	if got := quantile([]float64{7}, 0.99); got != 7 {
		t.Errorf("of one value: %v", got)
	}
	if got := median([]float64{3, 1, 2}); got != 2 {
		t.Errorf("median of three: %v", got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median of four: %v", got)
	}
}

func TestCPUTimeOfAServerIsThatOfItsChildrenToo(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc as it is read here")
	}
	own, err := readStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if own.parent != os.Getppid() {
		t.Errorf("parent %d, want %d", own.parent, os.Getppid())
	}
	before, err := serverCPU(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	// This process burns what a parent's account must then show.
	for deadline := time.Now().Add(10 * time.Second); ; {
		after, err := serverCPU(os.Getppid())
		if err != nil {
			t.Fatal(err)
		}
		if after-before >= 50*time.Millisecond {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s of CPU time in ten seconds of work", after-before)
		}
	}
	if rss, peak := memoryOf("self"); rss <= 1<<20 || peak < rss {
		t.Errorf("memory %d, at most %d", rss, peak)
	}
	if _, err := serverCPU(1 << 30); err == nil {
		t.Error("a process that does not exist has a CPU time")
	}
}

func TestTheCallerReadsAnswersWithALength(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write(body)
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("authorization %q", r.Header.Get("Authorization"))
		}
	}))
	defer server.Close()
	b := &bench{key: "secret"}
	addr := server.Listener.Addr().String()
	c, err := dialCaller(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for _, text := range []string{"one", "", strings.Repeat("many", 5000)} {
		status, answer, err := c.do(b.post(addr, "/x", []byte(text)))
		if err != nil || status != http.StatusAccepted || string(answer) != text {
			t.Errorf("%d, %d bytes, %v; want what was sent", status, len(answer), err)
		}
	}
}

func TestTheCallerRefusesWhatItCannotRead(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "nonsense\r\n\r\n", "HTTP/1.1 abc\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
	} {
		near, far := net.Pipe()
		go func() {
			_, _ = far.Read(make([]byte, 100))
			_, _ = io.WriteString(far, answer)
			_ = far.Close()
		}()
		c := newCaller(near)
		if status, _, err := c.do([]byte("request")); err == nil {
			t.Errorf("status %d of %q", status, answer)
		}
		c.close()
	}
}

func TestRatiosAreThoseOfMedians(t *testing.T) {
	r := &Report{StartedAt: time.Now(), Settings: map[string]string{}}
	for name, values := range map[string][]float64{reference: {1000, 3000, 2000}, tunedReference: {4000}, "webhook": {900, 1000, 1100}} {
		l := r.line(Scenario{Name: name, Summary: "about " + name, Unit: perSecond})
		for _, v := range values {
			l.Samples = append(l.Samples, Sample{Value: v, Cost: &Cost{Service: 0.5}})
		}
	}
	r.line(Scenario{Name: "latency", Unit: millis}).Samples = []Sample{{Value: 7, More: map[string]float64{"ms median": 2}}}
	r.line(Scenario{Name: "broken", Unit: perSecond}).Error = "went wrong"
	r.finish()
	for _, l := range r.Lines {
		switch l.Name {
		case "webhook":
			if l.Median != 1000 || l.Min != 900 || l.Max != 1100 || l.Ratio != 0.5 || l.Tuned != 0.25 {
				t.Errorf("%+v", l)
			}
		case "latency":
			if l.Ratio != 0 || l.Tuned != 0 {
				t.Errorf("a latency is compared with a throughput: %+v", l)
			}
		}
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1000 /s", "900 – 1100", "0.50", "0.25", "7.00 ms", "2.00 ms median", "about webhook", "broken   FAILED", "FAILED: went wrong"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
	if err := r.failures(); err == nil || !strings.Contains(err.Error(), "broken: went wrong") {
		t.Errorf("failures: %v", err)
	}
}

func TestAwaitFailsWhenWhatIsPolledFails(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrUnexpectedEOF)
	err := await(ctx, func() (int64, bool, error) { return 0, false, nil }, func() string { return "" })
	if err != io.ErrUnexpectedEOF { //nolint:errorlint // this very one
		t.Errorf("error %v, want the context's cause", err)
	}
	if err := await(t.Context(), func() (int64, bool, error) { return 0, false, io.EOF }, func() string { return "" }); err != io.EOF { //nolint:errorlint // this very one
		t.Errorf("error %v, want the poll's", err)
	}
	n := int64(0)
	if err := await(t.Context(), func() (int64, bool, error) { n++; return n, n == 3, nil }, func() string { return "" }); err != nil || n != 3 {
		t.Errorf("%d polls, %v", n, err)
	}
}

func TestDatabasesOfAServerHaveItsURL(t *testing.T) {
	got, err := withDatabase("postgres://me@host:1/app?sslmode=require", "x")
	if err != nil || got != "postgres://me@host:1/x?sslmode=require" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err = withDatabase("postgres:///postgres?host=%2Ftmp%2Fpg&user=postgres", "x"); err != nil || got != "postgres:///x?host=%2Ftmp%2Fpg&user=postgres" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := withDatabase("host=db password=secret", "x"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}
