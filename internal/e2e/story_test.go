//go:build unix

package e2e_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// story is what happened to one step: what the database says, and the calls that
// the sandbox received.
type story struct {
	reference, channel string
	step               int
	status, because    string
	final              bool
	attempts           []tried // that called, or may have
	refused            int     // attempts given up right before their call
	calls              []sandbox.Message
}

// tried is a row of attempts.
type tried struct {
	n         int
	started   time.Time
	outcome   string
	duplicate bool
	detail    string
}

func (s *story) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, step %d (%s), %s %s;", s.reference, s.step, s.channel, s.status, s.because)
	for _, a := range s.attempts {
		fmt.Fprintf(&text, " attempt %d %s duplicate=%t %q;", a.n, a.outcome, a.duplicate, a.detail)
	}
	for _, m := range s.calls {
		fmt.Fprintf(&text, " call at %s answered %+v;", m.ReceivedAt.Format(time.TimeOnly), m.Answer)
	}
	return text.String()
}

type storyKey struct{ reference, channel string }

var referencePattern = regexp.MustCompile(`e2e-\d{6}`)

// stories reads what happened to every step, in the order of notifications and
// steps.
func (c *cluster) stories(t *testing.T) []*story {
	t.Helper()
	all := map[storyKey]*story{}
	var list []*story
	rows, err := c.pool.Query(t.Context(), `
		select n.reference, d.step, d.channel, d.status, coalesce(d.because, ''), d.final
		from dispatcher.deliveries d join dispatcher.notifications n on n.id = d.notification_id order by 1, 2`)
	if err != nil {
		t.Fatal(err)
	}
	var s story
	if _, err = pgx.ForEachRow(rows, []any{&s.reference, &s.step, &s.channel, &s.status, &s.because, &s.final}, func() error {
		one := s
		all[storyKey{s.reference, s.channel}] = &one
		list = append(list, &one)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	rows, err = c.pool.Query(t.Context(), `
		select n.reference, d.channel, a.n, a.started_at, a.outcome, a.possible_duplicate, coalesce(a.detail, '')
		from dispatcher.attempts a join dispatcher.notifications n on n.id = a.notification_id
		join dispatcher.deliveries d on d.notification_id = a.notification_id and d.step = a.step and d.target = a.target
		order by a.turn`)
	if err != nil {
		t.Fatal(err)
	}
	var k storyKey
	var a tried
	if _, err = pgx.ForEachRow(rows, []any{&k.reference, &k.channel, &a.n, &a.started, &a.outcome, &a.duplicate, &a.detail}, func() error {
		if a.outcome == "not_attempted" {
			all[k].refused++
		} else {
			all[k].attempts = append(all[k].attempts, a)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.sandbox.Messages(sandbox.Filter{}) {
		k := storyKey{referenceOf(m), m.Channel}
		if all[k] == nil {
			t.Fatalf("the sandbox received a call that no step explains: %+v", m)
		}
		all[k].calls = append(all[k].calls, m)
	}
	return list
}

// wantNothingLostOrDoubled checks what must hold of every step whatever happened
// to providers and nodes.
func wantNothingLostOrDoubled(t *testing.T, stories []*story) {
	t.Helper()
	wantEach(t, stories, (*story).wrong)
}

// wantNothingLostOrUnmarked is the same where a node that was taken for dead came
// back: what it knows corrects attempts that had been unknown, after which their
// repeats can only be told by their marks.
func wantNothingLostOrUnmarked(t *testing.T, stories []*story) {
	t.Helper()
	wantEach(t, stories, (*story).wrongEnd)
}

func wantEach(t *testing.T, stories []*story, judge func(*story) string) {
	t.Helper()
	faults := 0
	last := map[string]*story{}
	for _, s := range stories {
		wrong := judge(s)
		if before := last[s.reference]; wrong == "" && before != nil {
			wrong = s.wrongAfter(before)
		}
		last[s.reference] = s
		if wrong == "" {
			continue
		}
		if faults++; faults <= 10 {
			t.Errorf("%s: %s", wrong, s)
		}
	}
	if faults > 10 {
		t.Errorf("and %d steps more", faults-10)
	}
}

// wrong says what of a step must not be, "" for nothing.
func (s *story) wrong() string {
	unknown := false
	for i, a := range s.attempts {
		if a.duplicate != unknown {
			return "an attempt is marked possible_duplicate although no earlier one is unknown, or the reverse"
		}
		unknown = unknown || a.outcome == "unknown"
		final := slices.Contains([]string{"accepted", "recipient_rejected", "message_rejected"}, a.outcome)
		if final && i < len(s.attempts)-1 {
			return "it was tried again after it was " + a.outcome
		}
	}
	return s.wrongEnd()
}

// wrongEnd says what must not be of how a step ended.
func (s *story) wrongEnd() string {
	taken, marked, unknown := 0, 0, 0
	for _, m := range s.calls {
		if m.Answer.Accepted {
			taken++
		}
	}
	for _, a := range s.attempts {
		if a.duplicate {
			marked++
		}
		if a.outcome == "unknown" {
			unknown++
		}
	}
	success := s.status == "sent" || s.status == "delivered"
	switch {
	case !s.final:
		return "it has not ended"
	case len(s.calls) > len(s.attempts):
		return "a call was made that no attempt tells of"
	case taken > 1+marked:
		return "it was taken twice and no attempt is marked possible_duplicate"
	case success && taken == 0 && s.because != "assumed":
		return "it is said to be sent and was never received"
	case !success && taken > 0 && unknown == 0:
		return "it was received and is said to be " + s.status
	}
	return ""
}

// wrongAfter says what must not be of a step that stands behind another one in
// its chain.
func (s *story) wrongAfter(before *story) string {
	switch {
	case s.step != before.step+1:
		return "a step was left out"
	case before.status == "sent" || before.status == "delivered":
		return "it was started although the step before it was " + before.status
	case len(s.calls) > 0 && len(before.calls) > 0 &&
		s.calls[0].ReceivedAt.Before(before.calls[len(before.calls)-1].ReceivedAt):
		return "it was called before the step before it had ended"
	}
	return ""
}

// wantEveryCallRecorded checks that no attempt is without its call.
func wantEveryCallRecorded(t *testing.T, stories []*story) {
	t.Helper()
	for _, s := range stories {
		if len(s.calls) != len(s.attempts) {
			t.Errorf("%d calls and %d attempts: %s", len(s.calls), len(s.attempts), s)
		}
	}
}

// outcomes counts attempts by outcome, for the log.
func outcomes(stories []*story) string {
	counts := map[string]int{}
	calls := 0
	for _, s := range stories {
		calls += len(s.calls)
		if s.refused > 0 {
			counts["not_attempted"] += s.refused
		}
		for _, a := range s.attempts {
			counts[a.outcome]++
			if a.duplicate {
				counts["possible_duplicate"]++
			}
		}
	}
	return fmt.Sprintf("%d steps, %d calls, attempts %v", len(stories), calls, counts)
}

// newest returns the latest start of a repeat that may be a duplicate.
func newest(stories []*story) time.Time {
	var at time.Time
	for _, s := range stories {
		for _, a := range s.attempts {
			if a.duplicate && a.started.After(at) {
				at = a.started
			}
		}
	}
	return at
}
