package resilience_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

func TestPeekTellsWhatTakeWouldAndTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := resilience.NewLimiter(resilience.LimiterConfig{})
		limit := resilience.Limit{PerSecond: 1, Burst: 3}
		for range 10 {
			if d := l.Peek("a", limit); !d.OK || d.Remaining != 3 {
				t.Fatalf("a key that nobody took of: %+v", d)
			}
		}
		for range 3 {
			if !l.Peek("a", limit).OK || !l.Take(t.Context(), "a", limit, 1).OK {
				t.Fatal("refused within the burst")
			}
		}
		if d := l.Peek("a", limit); d.OK || d.RetryAfter != time.Second {
			t.Errorf("a spent key: %+v", d)
		}
		if !l.Peek("b", limit).OK {
			t.Error("another key is spent too")
		}
		time.Sleep(time.Second) // of the test's own clock
		if d := l.Peek("a", limit); !d.OK || d.Remaining != 1 {
			t.Errorf("a second later: %+v", d)
		}
	})
}
