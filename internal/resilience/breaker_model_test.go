package resilience_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// model is what a breaker's rules say, written as history rather than as
// counters: what was reported since the last change, and which permits are out.
type model struct {
	b   *resilience.Breaker
	cfg resilience.BreakerConfig
	now time.Time

	state     resilience.State
	openUntil time.Time
	opened    int                   // times since healthy
	closedAt  time.Time             // zero: always
	heard     []resilience.Evidence // since the last change, in order
	out       []*call
	era       int // grows with every change
}

type call struct {
	permit resilience.Permit
	era    int
	probe  bool
	lease  time.Time
	lost   bool // its lease ended and another took its place, or it was reported
}

func (m *model) change(to resilience.State) {
	m.state, m.heard, m.era = to, nil, m.era+1
}

// row counts how many of the latest verdicts are v, neutral ones aside.
func (m *model) row(v resilience.Verdict) int {
	n := 0
	for _, v0 := range slices.Backward(m.heard) {
		switch v0.Verdict {
		case v:
			n++
		case resilience.None, resilience.Neutral:
		default:
			return n
		}
	}
	return n
}

// good counts successes while half-open, three neutral answers as one.
func (m *model) good() int {
	n, neutrals := 0, 0
	for _, e := range m.heard {
		switch e.Verdict {
		case resilience.Success:
			n, neutrals = n+1, 0
		case resilience.Neutral:
			if neutrals++; neutrals == m.cfg.Neutrals {
				n, neutrals = n+1, 0
			}
		case resilience.None, resilience.Failure, resilience.Rejected:
		}
	}
	return n
}

func (m *model) probe() *call {
	for _, c := range m.out {
		if c.era == m.era && c.probe && !c.lost {
			return c
		}
	}
	return nil
}

func (m *model) admit(t *rapid.T) {
	p, ok, change := m.b.Admit(m.now)
	want := true
	switch m.state {
	case resilience.Open:
		want = !m.now.Before(m.openUntil)
	case resilience.HalfOpen:
		c := m.probe()
		want = c == nil || !m.now.Before(c.lease)
	case resilience.Closed:
	}
	if ok != want {
		t.Fatalf("admitted %t, want %t, in state %s", ok, want, m.state)
	}
	if !ok {
		return
	}
	if m.state == resilience.Open {
		m.change(resilience.HalfOpen)
		if change.To != resilience.HalfOpen {
			t.Fatalf("change %+v, want to half-open", change)
		}
	}
	if c := m.probe(); c != nil {
		c.lost = true
	}
	c := &call{permit: p, era: m.era, probe: m.state == resilience.HalfOpen, lease: m.now.Add(m.cfg.ProbeLease)}
	if p.Probe() != c.probe {
		t.Fatalf("probe %t, want %t", p.Probe(), c.probe)
	}
	m.out = append(m.out, c)
}

func (m *model) report(t *rapid.T) {
	if len(m.out) == 0 {
		t.Skip("no call is out")
	}
	c := rapid.SampledFrom(m.out).Draw(t, "call") // also one reported before
	e := resilience.Evidence{
		Verdict:    rapid.SampledFrom([]resilience.Verdict{resilience.None, resilience.Neutral, resilience.Success, resilience.Failure, resilience.Failure, resilience.Rejected}).Draw(t, "verdict"),
		RetryAfter: time.Duration(rapid.IntRange(0, 90).Draw(t, "retry after")) * time.Second,
	}
	before := m.b.Status(m.now)
	change := m.b.Report(c.permit, e, m.now, middle)
	if c.era != m.era || c.lost || c.probe && m.state != resilience.HalfOpen {
		if change.Changed() || m.b.Status(m.now) != before {
			t.Fatalf("a void verdict counts: %+v", change)
		}
		return
	}
	if c.probe {
		c.lost = true
	}
	m.heard = append(m.heard, e)
	m.expect(t, e, change)
}

func (m *model) expect(t *rapid.T, e resilience.Evidence, change resilience.Transition) {
	opens := e.Verdict == resilience.Rejected ||
		m.state == resilience.HalfOpen && e.Verdict == resilience.Failure ||
		m.state == resilience.Closed && m.row(resilience.Failure) >= m.cfg.Failures
	closes := m.state == resilience.HalfOpen && m.good() >= m.cfg.Successes
	switch {
	case opens:
		if m.state == resilience.Closed && m.now.Sub(m.closedAt) >= m.cfg.Healthy {
			m.opened = 0
		}
		m.opened++
		d := m.cfg.OpenFor
		for range m.opened - 1 {
			d = min(2*d, m.cfg.OpenCap)
		}
		d = max(d, e.RetryAfter)
		if e.Verdict == resilience.Rejected {
			d = max(d, m.cfg.RejectedFor)
		}
		m.openUntil = m.now.Add(d)
		m.change(resilience.Open)
		if change.To != resilience.Open || !change.Until.Equal(m.openUntil) {
			t.Fatalf("change %+v, want open for %v", change, d)
		}
	case closes:
		m.closedAt = m.now
		m.change(resilience.Closed)
		if change.To != resilience.Closed {
			t.Fatalf("change %+v, want closed", change)
		}
	case change.Changed():
		t.Fatalf("change %+v, want none, in state %s after %v", change, m.state, m.heard)
	}
}

func (m *model) check(t *rapid.T) {
	if got := m.b.Status(m.now).State; got != m.state {
		t.Fatalf("state %s, want %s", got, m.state)
	}
	live := 0
	for _, c := range m.out {
		if c.probe && c.era == m.era && !c.lost && m.now.Before(c.lease) {
			live++
		}
	}
	if live > 1 {
		t.Fatalf("%d probes are out", live)
	}
}

func TestBreakerDoesWhatItsRulesSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := resilience.BreakerConfig{
			Failures: rapid.IntRange(1, 4).Draw(t, "failures"), Successes: rapid.IntRange(1, 3).Draw(t, "successes"),
			Neutrals: 3, OpenFor: 30 * time.Second, OpenCap: 5 * time.Minute, ProbeLease: 20 * time.Second,
			RejectedFor: 2 * time.Minute, Healthy: 10 * time.Minute,
		}
		m := &model{b: resilience.NewBreaker(cfg), cfg: cfg, now: start, state: resilience.Closed}
		t.Repeat(map[string]func(*rapid.T){
			"admit":  m.admit,
			"report": m.report,
			"wait": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int{1, 10, 20, 30, 300, 600}).Draw(t, "seconds")) * time.Second)
			},
			"": m.check,
		})
	})
}
