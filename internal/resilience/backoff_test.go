package resilience_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

func TestBackoffDoublesUpToItsCap(t *testing.T) {
	const top = 0x1.fffffffffffffp-1 // the largest random number
	for _, tt := range []struct {
		retry     int
		low, high time.Duration
	}{
		{math.MinInt, 250 * time.Millisecond, time.Second},
		{0, 250 * time.Millisecond, time.Second},
		{1, 250 * time.Millisecond, time.Second},
		{2, 250 * time.Millisecond, 2 * time.Second},
		{3, 250 * time.Millisecond, 4 * time.Second},
		{5, 250 * time.Millisecond, 16 * time.Second},
		{6, 250 * time.Millisecond, 30 * time.Second},
		{7, 250 * time.Millisecond, 30 * time.Second},
		{math.MaxInt, 250 * time.Millisecond, 30 * time.Second},
	} {
		var b resilience.Backoff
		if got := b.Delay(tt.retry, 0); got != tt.low {
			t.Errorf("Delay(%d, 0) = %v, want %v", tt.retry, got, tt.low)
		}
		if got := b.Delay(tt.retry, top); got > tt.high || tt.high-got > time.Microsecond {
			t.Errorf("Delay(%d, 1-ε) = %v, want %v", tt.retry, got, tt.high)
		}
	}
}

func TestBackoffIsUniformBetweenFloorAndCeiling(t *testing.T) {
	b := resilience.Backoff{Base: 10 * time.Second, Cap: time.Minute, Floor: 2 * time.Second}
	if got, want := b.Delay(1, 0.5), 6*time.Second; got != want {
		t.Errorf("Delay(1, 0.5) = %v, want %v, half way", got, want)
	}
	if got, want := b.Delay(2, 0.25), 6500*time.Millisecond; got != want {
		t.Errorf("Delay(2, 0.25) = %v, want %v, a quarter of the way", got, want)
	}
}

func TestBackoffStaysBetweenFloorAndCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.Int64Range(1, int64(48*time.Hour))
		b := resilience.Backoff{
			Base: time.Duration(d.Draw(t, "base")), Cap: time.Duration(d.Draw(t, "cap")), Floor: time.Duration(d.Draw(t, "floor")),
		}
		rnd := rapid.Float64().Draw(t, "rand")
		retry := rapid.Int().Draw(t, "retry")
		got := b.Delay(retry, rnd)
		if got < b.Floor || got > max(b.Floor, b.Cap) {
			t.Fatalf("%+v.Delay(%d, %v) = %v", b, retry, rnd, got)
		}
		if retry < 1000 {
			if next := b.Delay(retry+1, rnd); next < got {
				t.Fatalf("the next delay for the same random number is shorter: %v, %v", got, next)
			}
		}
	})
}
