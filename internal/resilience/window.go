package resilience

import "time"

// windowBuckets times bucketWidth is how far back rates look: one minute.
const (
	windowBuckets = 6
	bucketWidth   = 10 * time.Second
	// WindowWidth is how far back evidence counts.
	WindowWidth = windowBuckets * bucketWidth
)

// Tally is what one process saw of a scope lately.
type Tally struct {
	// Streak counts failures since the last success; StreakAt is the last one.
	Streak   int
	StreakAt time.Time
	// Calls counts answers that speak for or against the provider within
	// [WindowWidth]; Failures and Slow are those of them that failed or took too
	// long.
	Calls, Failures, Slow int
}

// Window gathers a process's evidence about one scope. Its zero value is empty.
type Window struct {
	streak   int
	streakAt time.Time
	buckets  [windowBuckets]bucket
}

type bucket struct {
	begins                time.Time
	calls, failures, slow int
}

// Add counts one call. Neutral and absent verdicts are no evidence.
func (w *Window) Add(v Verdict, slow bool, now time.Time) {
	switch v {
	case Success:
		w.streak = 0
	case Failure:
		if now.Sub(w.streakAt) >= WindowWidth {
			w.streak = 0
		}
		w.streak++
		w.streakAt = now
	case None, Neutral, Rejected:
		return
	}
	begins := now.Truncate(bucketWidth)
	b := &w.buckets[begins.Unix()/int64(bucketWidth/time.Second)%windowBuckets]
	if !b.begins.Equal(begins) {
		*b = bucket{begins: begins}
	}
	b.calls++
	if v == Failure {
		b.failures++
	}
	if slow {
		b.slow++
	}
}

// Tally returns what the window holds.
func (w *Window) Tally(now time.Time) Tally {
	t := Tally{}
	if w.streak > 0 && now.Sub(w.streakAt) < WindowWidth {
		t.Streak, t.StreakAt = w.streak, w.streakAt
	}
	for _, b := range w.buckets {
		// One far ahead of now is from before the clock was set back.
		if age := now.Sub(b.begins); age < WindowWidth && age > -bucketWidth {
			t.Calls, t.Failures, t.Slow = t.Calls+b.calls, t.Failures+b.failures, t.Slow+b.slow
		}
	}
	return t
}

// Clear forgets everything, as after the breaker changed: what was seen under
// an older generation says nothing about the new one.
func (w *Window) Clear() { *w = Window{} }

// Sum joins what several processes saw of a scope.
type Sum struct {
	Streak                int // of all processes together
	Calls, Failures, Slow int

	Nodes   int // processes that had answers
	Failing int // those that saw failures and no success since
	Failed  int // those that saw any failures
	Slowed  int // those that saw slow calls
}

// Add joins one process's tally.
func (s *Sum) Add(t Tally) {
	if t.Calls == 0 {
		return
	}
	s.Nodes++
	s.Streak += t.Streak
	s.Calls, s.Failures, s.Slow = s.Calls+t.Calls, s.Failures+t.Failures, s.Slow+t.Slow
	s.Failing, s.Failed, s.Slowed = s.Failing+anyOf(t.Streak), s.Failed+anyOf(t.Failures), s.Slowed+anyOf(t.Slow)
}

// anyOf is 1 where there are any.
func anyOf(n int) int { return min(n, 1) }

// Trips reports whether the evidence opens a breaker, and why. Where two or more
// processes have answers, two of them must see it: one sick process must not cut
// the others off. It protects itself with a guard of its own.
func (c BreakerConfig) Trips(s Sum) (Reason, bool) {
	quorum := min(s.Nodes, 2)
	switch {
	case s.Streak >= orDefault(c.Failures, DefaultFailures) && s.Failing >= quorum:
		return ReasonFailures, true
	case s.Calls < orDefault(c.MinCalls, DefaultMinCalls):
	case c.FailureRate > 0 && float64(s.Failures) >= c.FailureRate*float64(s.Calls) && s.Failed >= quorum:
		return ReasonFailureRate, true
	case c.SlowRate > 0 && float64(s.Slow) >= c.SlowRate*float64(s.Calls) && s.Slowed >= quorum:
		return ReasonSlow, true
	}
	return "", false
}
