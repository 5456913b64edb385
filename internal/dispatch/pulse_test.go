package dispatch

import (
	"testing"
	"time"
)

func TestANodeTrustsNoClaimFromBeforeASilence(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	type beat struct{ sent, written float64 } // seconds
	tests := []struct {
		name         string
		beats        []beat
		claimed, now float64
		want         bool
	}{
		{"no beat yet", nil, 0, 1, false},
		{"claimed between beats", []beat{{0, 0}, {1, 1}}, 0.5, 2, true},
		{"the last beat is too old", []beat{{0, 0}}, 1, 4, false},
		{"a late beat is no silence", []beat{{0, 0}, {3, 3.9}}, 1, 4, true},
		{"claimed before a silence", []beat{{0, 0}, {20, 20}}, 1, 20, false},
		{"claimed during a silence", []beat{{0, 0}, {20, 20}}, 10, 20, false},
		{"claimed after a silence", []beat{{0, 0}, {20, 20}}, 20, 21, true},
		{"a beat that took too long is a silence", []beat{{0, 0}, {1, 4.5}}, 0.5, 4.6, false},
		{"beats after a silence do not mend it", []beat{{0, 0}, {20, 20}, {21, 21}, {22, 22}}, 1, 22, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPulse()
			for _, b := range test.beats {
				p.confirm(at(b.sent), at(b.written))
			}
			if got := p.holds(at(test.claimed), at(test.now)); got != test.want {
				t.Errorf("it holds: %t, want %t", got, test.want)
			}
		})
	}
}
