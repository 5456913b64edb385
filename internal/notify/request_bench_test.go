package notify_test

import (
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func BenchmarkParse(b *testing.B) {
	body := []byte(`{"to":{"push":{"provider":"fcm","token":"dGVzdC10b2tlbg"},"sms":"+14155550100","email":"ana@example.com"},
		"chain":[{"channel":"push"},{"channel":"sms","success":"delivered","within":"90s"},{"channel":"email"}],
		"content":{"title":"Deploy failed","body":"api: 3 of 5 pods are down","data":{"incident":4711}},
		"priority":"high","reference":"incident-4711","metadata":{"team":"core"}}`)
	o := options()
	b.ReportAllocs()
	for b.Loop() {
		if _, problems := notify.Parse(body, o); problems != nil {
			b.Fatal(problems)
		}
	}
}
