package sandbox_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// BenchmarkSink measures how fast messages are taken, client included: the
// sandbox is the sink of the dispatcher's own measurements.
func BenchmarkSink(b *testing.B) {
	form := url.Values{"To": {"+14155550100"}, "From": {"+15005550006"}, "Body": {"api: 3 of 5 pods are down"}}.Encode()
	for name, tt := range map[string]struct{ path, kind, body string }{
		"webhook": {"/webhook/a", "application/json", `{"id":"0193","title":"Deploy failed","body":"api: 3 of 5 pods are down"}`},
		"twilio":  {"/2010-04-01/Accounts/AC1/Messages.json", "application/x-www-form-urlencoded", form},
	} {
		b.Run(name, func(b *testing.B) {
			s, err := sandbox.New(sandbox.Config{})
			if err != nil {
				b.Fatal(err)
			}
			s.Start(b.Context())
			defer func() { _ = s.Close() }()
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.HTTPURL()+tt.path, strings.NewReader(tt.body))
					if err != nil {
						b.Error(err)
						return
					}
					req.Header.Set("Content-Type", tt.kind)
					req.SetBasicAuth("AC1", "x")
					resp, err := client.Do(req)
					if err != nil {
						b.Error(err)
						return
					}
					_ = resp.Body.Close()
					if resp.StatusCode/100 != 2 {
						b.Errorf("answered %d", resp.StatusCode)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
