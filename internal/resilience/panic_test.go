package resilience_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/simulation"
)

// What a panic leaves behind must be fit to go on: whoever catches it begins anew.

// catch runs do and reports whether it panicked.
func catch(do func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	do()
	return false
}

// faulty is a source whose first exchange panics.
type faulty struct {
	*source
	once sync.Once
}

func (f *faulty) TakeTokens(ctx context.Context, asks []resilience.Ask) (grants []resilience.Grant, err error) {
	f.once.Do(func() { panic("no") })
	return f.source.TakeTokens(ctx, asks)
}

func TestALimiterAnswersAndGoesOnAfterAPanicOfItsSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{source: &source{t: t, keys: map[string]*resilience.GCRA{}}}
		l := resilience.NewLimiter(resilience.LimiterConfig{Source: s})
		ctx, cancel := context.WithCancel(t.Context())
		fell, done := make(chan bool, 1), make(chan struct{})
		go func() {
			defer close(done)
			fell <- catch(func() { l.Run(ctx) })
			l.Run(ctx)
		}()
		synctest.Wait()
		begun := time.Now()
		if d := l.Take(t.Context(), "key", hundred, 1); !d.OK || time.Since(begun) > time.Second {
			t.Errorf("who asked while the source panicked has %+v after %v", d, time.Since(begun))
		}
		if !<-fell {
			t.Fatal("the panic was swallowed")
		}
		time.Sleep(time.Minute) //nolint:forbidigo // by the clock of the bubble
		if d := l.Take(t.Context(), "key", hundred, 1); !d.OK || s.asks("key") == 0 {
			t.Errorf("%+v after %d asks, want the source asked again", d, s.asks("key"))
		}
		cancel()
		<-done
	})
}

func TestWhatAFlushHadCollectedOutlivesItsPanic(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0, 0)
	a, b := c.nodes[0], c.nodes[1]
	a.fail(5, account("a"))
	a.member.Throttle("a/s", a.clock().Add(time.Minute), a.clock())
	a.link.Via = func(simulation.Op, func()) error { panic("no") }
	if !catch(a.flush) {
		t.Fatal("the panic was swallowed")
	}
	a.link.Via = nil
	c.sync()
	c.wantState("a", resilience.Open)
	if left := b.denied(resilience.KindGate, sender("a/s")); left < 59*time.Second {
		t.Errorf("the other process is held for %v", left)
	}
}
