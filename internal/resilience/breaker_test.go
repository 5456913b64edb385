package resilience_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

var (
	start   = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	success = resilience.Evidence{Verdict: resilience.Success}
	failure = resilience.Evidence{Verdict: resilience.Failure}
	neutral = resilience.Evidence{Verdict: resilience.Neutral}
	none    = resilience.Evidence{Verdict: resilience.None}
)

// middle is the random number that leaves an open time as it is.
const middle = 0.5

// bench is a breaker and a clock to drive it by.
type bench struct {
	t   *testing.T
	b   *resilience.Breaker
	now time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return &bench{t, resilience.NewBreaker(resilience.BreakerConfig{}), start}
}

func (x *bench) admit() resilience.Permit {
	x.t.Helper()
	p, ok, _ := x.b.Admit(x.now)
	if !ok {
		x.t.Fatalf("refused; status %+v", x.b.Status(x.now))
	}
	return p
}

func (x *bench) refused() resilience.Refusal {
	x.t.Helper()
	if _, ok, _ := x.b.Admit(x.now); ok {
		x.t.Fatalf("admitted; status %+v", x.b.Status(x.now))
	}
	r, _ := x.b.Refuses(x.now)
	return r
}

func (x *bench) report(p resilience.Permit, e resilience.Evidence) resilience.Transition {
	return x.b.Report(p, e, x.now, middle)
}

// call makes one call with the given end.
func (x *bench) call(e resilience.Evidence) resilience.Transition {
	x.t.Helper()
	return x.report(x.admit(), e)
}

func (x *bench) calls(n int, e resilience.Evidence) {
	x.t.Helper()
	for range n {
		x.call(e)
	}
}

func (x *bench) want(s resilience.State) {
	x.t.Helper()
	if got := x.b.Status(x.now).State; got != s {
		x.t.Fatalf("state %q, want %q", got, s)
	}
}

// halfOpen brings a new breaker to where its first probe is due.
func (x *bench) halfOpen() {
	x.t.Helper()
	x.calls(5, failure)
	x.now = x.now.Add(30 * time.Second)
}

func TestBreakerClosed(t *testing.T) {
	t.Run("opens after five failures", func(t *testing.T) {
		x := newBench(t)
		x.calls(4, failure)
		x.want(resilience.Closed)
		got := x.call(failure)
		want := resilience.Transition{
			From: resilience.Closed, To: resilience.Open, Reason: resilience.ReasonFailures, Generation: 1,
			At: x.now, Until: x.now.Add(30 * time.Second),
		}
		if got != want {
			t.Errorf("transition %+v, want %+v", got, want)
		}
		if r := x.refused(); !r.Until.Equal(want.Until) || r.Forced {
			t.Errorf("refused until %v, want %v", r.Until, want.Until)
		}
	})
	t.Run("counts failures in a row only", func(t *testing.T) {
		x := newBench(t)
		for range 10 {
			x.calls(4, failure)
			x.call(success)
		}
		x.want(resilience.Closed)
	})
	t.Run("is neither opened nor kept from opening by neutral answers", func(t *testing.T) {
		x := newBench(t)
		x.calls(1000, neutral)
		x.calls(1000, none)
		x.want(resilience.Closed)
		x.calls(4, failure)
		x.calls(3, neutral)
		x.call(failure)
		x.want(resilience.Open)
	})
	t.Run("counts calls that overlap", func(t *testing.T) {
		x := newBench(t)
		var out []resilience.Permit
		for range 7 {
			out = append(out, x.admit())
		}
		for _, p := range out {
			x.report(p, failure)
		}
		x.want(resilience.Open)
		if n := x.b.Status(x.now).OpenCount; n != 1 {
			t.Errorf("opened %d times by one wave of failures", n)
		}
	})
	t.Run("opens at once when the account is rejected", func(t *testing.T) {
		x := newBench(t)
		got := x.call(resilience.Evidence{Verdict: resilience.Rejected})
		if got.Reason != resilience.ReasonRejected || !got.Until.Equal(x.now.Add(5*time.Minute)) {
			t.Errorf("transition %+v, want account_rejected for 5 min", got)
		}
	})
	t.Run("does not open sooner than Retry-After allows", func(t *testing.T) {
		x := newBench(t)
		x.calls(4, failure)
		got := x.call(resilience.Evidence{Verdict: resilience.Failure, RetryAfter: 10 * time.Minute})
		if want := x.now.Add(10 * time.Minute); !got.Until.Equal(want) {
			t.Errorf("open until %v, want %v", got.Until, want)
		}
	})
}

func TestBreakerHalfOpen(t *testing.T) {
	t.Run("begins with the first call after the open time", func(t *testing.T) {
		x := newBench(t)
		x.calls(5, failure)
		x.now = x.now.Add(30*time.Second - 1)
		x.refused()
		x.now = x.now.Add(1)
		x.want(resilience.Open)
		p, ok, change := x.b.Admit(x.now)
		if !ok || !p.Probe() || change.To != resilience.HalfOpen || change.Reason != resilience.ReasonProbe {
			t.Errorf("Admit = %+v, %t, %+v; want a probe", p, ok, change)
		}
	})
	t.Run("admits one probe at a time", func(t *testing.T) {
		x := newBench(t)
		x.halfOpen()
		p := x.admit()
		if r := x.refused(); !r.Until.Equal(x.now.Add(time.Minute)) {
			t.Errorf("refused until %v, want the end of the lease", r.Until)
		}
		x.report(p, success)
		x.admit()
		x.refused()
	})
	t.Run("closes after two successes", func(t *testing.T) {
		x := newBench(t)
		x.halfOpen()
		x.call(success)
		x.want(resilience.HalfOpen)
		if got := x.call(success); got.To != resilience.Closed || got.Reason != resilience.ReasonProbesSucceeded {
			t.Errorf("transition %+v", got)
		}
		x.calls(4, failure) // counting starts afresh
		x.want(resilience.Closed)
	})
	t.Run("opens again after a failure, for longer each time", func(t *testing.T) {
		x := newBench(t)
		x.halfOpen()
		for i, seconds := range []int{60, 120, 240, 300, 300} {
			want := time.Duration(seconds) * time.Second
			x.call(success) // one is not enough
			got := x.call(failure)
			if d := got.Until.Sub(x.now); d != want || got.Reason != resilience.ReasonProbeFailed {
				t.Errorf("open time %d is %v (%s), want %v", i+2, d, got.Reason, want)
			}
			x.now = got.Until
		}
	})
	t.Run("frees the place of a probe that had no verdict", func(t *testing.T) {
		x := newBench(t)
		x.halfOpen()
		for range 10 {
			x.call(none)
		}
		x.want(resilience.HalfOpen)
	})
	t.Run("takes three neutral answers for a success", func(t *testing.T) {
		x := newBench(t)
		x.halfOpen()
		x.calls(5, neutral)
		x.want(resilience.HalfOpen)
		x.call(neutral)
		x.want(resilience.Closed)
	})
	t.Run("gives up a probe whose lease is over", func(t *testing.T) {
		x := newBench(t)
		x.halfOpen()
		lost := x.admit()
		x.now = x.now.Add(time.Minute)
		second := x.admit()
		if got := x.report(lost, failure); got.Changed() {
			t.Errorf("a lost probe's verdict counts: %+v", got)
		}
		x.refused() // the second one still has its place
		x.report(second, success)
		x.call(success)
		x.want(resilience.Closed)
	})
	t.Run("takes a probe's verdict once", func(t *testing.T) {
		x := newBench(t)
		x.halfOpen()
		p := x.admit()
		x.report(p, success)
		x.report(p, success)
		x.want(resilience.HalfOpen)
	})
	t.Run("voids verdicts from before", func(t *testing.T) {
		x := newBench(t)
		old := x.admit()
		x.halfOpen()
		probe := x.admit()
		x.report(old, failure)
		x.want(resilience.HalfOpen)
		x.report(old, success)
		x.report(probe, success)
		x.want(resilience.HalfOpen)
		x.call(success)
		x.want(resilience.Closed)
		for range 10 {
			x.report(old, failure)
			x.report(probe, failure)
		}
		x.want(resilience.Closed)
	})
}

func TestBreakerForgetsItsPastAfterAHealthyHour(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{
		time.Hour - 1: time.Minute,
		time.Hour:     30 * time.Second,
	} {
		x := newBench(t)
		x.halfOpen()
		x.calls(2, success)
		if x.b.Idle(x.now) {
			t.Error("idle as soon as it has closed")
		}
		x.now = x.now.Add(after)
		if got := x.b.Idle(x.now); got != (after == time.Hour) {
			t.Errorf("idle after %v: %t", after, got)
		}
		x.calls(4, failure)
		if got := x.call(failure).Until.Sub(x.now); got != want {
			t.Errorf("open for %v when it fails %v after closing, want %v", got, after, want)
		}
	}
}

func TestOpenTimeVariesByAFifth(t *testing.T) {
	var c resilience.BreakerConfig
	for rnd, want := range map[float64]time.Duration{0: 24 * time.Second, middle: 30 * time.Second, 0.75: 33 * time.Second} {
		if got := c.OpenTime(1, 0, rnd); got != want {
			t.Errorf("OpenTime(1, 0, %v) = %v, want %v", rnd, got, want)
		}
	}
	if got := c.OpenTime(1, time.Hour, 0); got != time.Hour {
		t.Errorf("OpenTime of at least an hour is %v", got)
	}
	if got := c.OpenTime(1<<40, 0, middle); got != 5*time.Minute {
		t.Errorf("OpenTime after very many times is %v, want the cap", got)
	}
}

func TestBreakerUnderAnOperator(t *testing.T) {
	by := resilience.Override{Who: "ana", Why: "maintenance at the vendor"}
	t.Run("stays open until reset", func(t *testing.T) {
		x := newBench(t)
		got := x.b.ForceOpen(by, x.now)
		if got.To != resilience.Open || got.Reason != resilience.ReasonForced || *got.By != by {
			t.Errorf("transition %+v", got)
		}
		x.now = x.now.Add(1000 * time.Hour)
		if r := x.refused(); !r.Until.IsZero() || !r.Forced {
			t.Errorf("refusal %+v, want a forced one without an end", r)
		}
		if f := x.b.Status(x.now).Forced; f == nil || *f != by {
			t.Errorf("forced %+v, want %+v", f, by)
		}
		x.b.Reset(by, x.now)
		x.call(success)
		x.want(resilience.Closed)
	})
	t.Run("is probed when a forced open time is over", func(t *testing.T) {
		x := newBench(t)
		until := by
		until.Until = x.now.Add(time.Hour)
		x.b.ForceOpen(until, x.now)
		x.now = until.Until.Add(-1)
		x.refused()
		x.now = until.Until
		if !x.admit().Probe() {
			t.Error("the first call is no probe")
		}
		x.refused()
	})
	t.Run("stays closed whatever happens while forced", func(t *testing.T) {
		x := newBench(t)
		x.calls(5, failure)
		until := by
		until.Until = x.now.Add(time.Hour)
		x.b.ForceClosed(until, x.now)
		x.calls(100, failure)
		x.want(resilience.Closed)
		before := x.admit()
		x.now = until.Until
		x.calls(4, failure)
		x.report(before, failure) // void: it is from before
		x.want(resilience.Closed)
		x.call(failure)
		x.want(resilience.Open)
	})
	t.Run("voids verdicts from before a reset", func(t *testing.T) {
		x := newBench(t)
		x.halfOpen()
		probe := x.admit()
		x.b.Reset(by, x.now)
		for range 10 {
			x.report(probe, failure)
		}
		x.want(resilience.Closed)
	})
}

func TestGateOnlyMovesLater(t *testing.T) {
	var g resilience.Gate
	if _, shut := g.Until(start); shut {
		t.Error("a new gate is shut")
	}
	g.Shut(start.Add(30 * time.Second))
	if g.Shut(start.Add(10*time.Second)) || g.Shut(start.Add(30*time.Second)) {
		t.Error("the gate says that it moved earlier")
	}
	if until, shut := g.Until(start.Add(30*time.Second - 1)); !shut || !until.Equal(start.Add(30*time.Second)) {
		t.Errorf("until %v, shut %t; want shut for 30 s", until, shut)
	}
	if _, shut := g.Until(start.Add(30 * time.Second)); shut {
		t.Error("shut at its instant")
	}
	g.Reset()
	if _, shut := g.Until(start); shut {
		t.Error("shut after a reset")
	}
}
