package email

import (
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// BenchmarkSend compares a connection that is used again with one for each
// message, on the loopback and without TLS, where a new one is cheapest.
func BenchmarkSend(b *testing.B) {
	for name, idle := range map[string]bool{"reused connection": true, "new connection": false} {
		b.Run(name, func(b *testing.B) {
			s := newServer(b)
			cfg := s.config()
			if !idle {
				cfg.IdleTimeout = -1
			}
			p := newProvider(b, cfg)
			m := testMessage()
			b.ReportAllocs()
			for b.Loop() {
				if r := p.Send(b.Context(), m); r.Outcome != notify.Accepted {
					b.Fatal(r.Detail)
				}
			}
		})
	}
}

// BenchmarkRender is the cost of a message without its server.
func BenchmarkRender(b *testing.B) {
	p := newProvider(b, Config{Host: "127.0.0.1", TLS: tlsNone, From: Address{Address: "alerts@example.com"}})
	m := testMessage()
	b.ReportAllocs()
	for b.Loop() {
		l, bad := p.read(m)
		if bad != nil {
			b.Fatal(bad)
		}
		if _, err := p.render(l, messageID(m, l.from), deliveryRef(m).String()); err != nil {
			b.Fatal(err)
		}
	}
}
