package fallback_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// answered is a call with its own answer, of which receipts came; those that
// failed for the last reason that is given.
func answered(o notify.Outcome, receipts ...notify.Status) fallback.Call {
	c := fallback.Call{Outcome: o}
	for _, s := range receipts {
		var kind notify.Outcome
		if s == notify.Failed {
			kind = notify.RecipientUnavailable
		}
		c.Receive(s, kind)
	}
	return c
}

func TestCallsAreWeighedTogether(t *testing.T) {
	t.Parallel()
	const (
		sent, failed, delivered, read = notify.Sent, notify.Failed, notify.Delivered, notify.Read
		none                          = notify.Outcome("")
	)
	type calls []fallback.Call
	for _, c := range []struct {
		name  string
		calls calls
		want  notify.Status
		last  bool
	}{
		{"no call", nil, "", false},
		{"one under way", calls{answered(none)}, "", false},
		{"one that nobody knows of", calls{answered(notify.Unknown)}, "", false},
		{"one that failed by its answer", calls{answered(notify.ProviderUnavailable)}, "", false},
		{"an acceptance", calls{answered(notify.Accepted)}, sent, false},
		{"a receipt before the answer", calls{answered(none, delivered)}, delivered, false},
		{"a receipt makes the unknown known", calls{answered(notify.Unknown, sent)}, sent, false},
		{"a receipt counts for more than an answer", calls{answered(notify.ProviderUnavailable, sent)}, sent, false},
		{"a failure takes the acceptance back", calls{answered(notify.Accepted, failed)}, failed, true},
		{"and what was sent", calls{answered(notify.Accepted, failed, sent)}, failed, true},
		{"a delivery takes the failure back", calls{answered(notify.Accepted, failed, delivered)}, delivered, false},
		{"in any order", calls{answered(notify.Accepted, read, delivered, failed, sent)}, read, false},
		{"a repeat was accepted", calls{answered(notify.Unknown, failed), answered(notify.Accepted)}, sent, false},
		{"the first was, the repeat failed", calls{answered(notify.Unknown, sent), answered(notify.Accepted, failed)}, sent, false},
		{"both failed", calls{answered(notify.Unknown, failed), answered(notify.Accepted, failed)}, failed, true},
		{"the first failed, the repeat is under way", calls{answered(notify.Unknown, failed), answered(none)}, failed, false},
		{"the first failed, nobody knows of the repeat", calls{answered(notify.Unknown, failed), answered(notify.Unknown)}, failed, false},
		{"the first arrived, the repeat failed", calls{answered(notify.Unknown, delivered), answered(notify.Accepted, failed)}, delivered, false},
		{"the repeat was read, the first delivered", calls{answered(notify.Unknown, delivered), answered(notify.Accepted, read)}, read, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := fallback.Weigh(c.calls)
			if e.Status != c.want || e.Last != c.last || (e.Kind != "") != (c.want == failed) {
				t.Errorf("%+v, want %s, of the last: %t", e, c.want, c.last)
			}
		})
	}
}

func TestAReceiptLeadsToAction(t *testing.T) {
	t.Parallel()
	failed := fallback.Evidence{Status: notify.Failed, Kind: notify.RecipientRejected, Last: true}
	older := fallback.Evidence{Status: notify.Failed, Kind: notify.RecipientRejected}
	says := func(s notify.Status) fallback.Evidence { return fallback.Evidence{Status: s} }
	const nothing = "nothing new"
	shown, read := notify.UntilDelivered, notify.UntilRead
	for _, c := range []struct {
		name string
		in   situation
		e    fallback.Evidence
		want string
	}{
		{"sent before the answer", situation{}, says(notify.Sent), "sent, receipt 72h0m0s, met A+1"},
		{"sent before the answer is not enough", situation{success: shown}, says(notify.Sent), "sent, receipt 2m0s (delivered) A+1"},
		{"delivered before the answer", situation{success: shown}, says(notify.Delivered), "delivered, the end, met A+1"},
		{"failed before the answer", situation{}, failed, "failed, the end (undelivered: recipient_rejected), next A+1"},
		{"failed before the answer of a repeat", situation{state: is(notify.Sending, attempt, repeated)}, older, nothing},
		{"sent, said again", situation{state: is(notify.Sent)}, says(notify.Sent), nothing},
		{"sent, said after delivered", situation{state: is(notify.Delivered)}, says(notify.Sent), nothing},
		{"delivered where that is all that can come", situation{state: is(notify.Sent)}, says(notify.Delivered), "delivered, the end, met"},
		{"delivered where it may be read", situation{observable: notify.Read, state: is(notify.Sent)}, says(notify.Delivered), "delivered, receipt 72h0m0s, met"},
		{"delivered where it must be read", situation{observable: notify.Read, success: read, state: is(notify.Sent)}, says(notify.Delivered), "delivered, receipt 2m0s (read)"},
		{"read", situation{observable: notify.Read, success: read, state: is(notify.Delivered)}, says(notify.Read), "read, the end, met"},
		{"failed after the acceptance", situation{state: is(notify.Sent)}, failed, "failed, the end (undelivered: recipient_rejected), next"},
		{"failed after the acceptance, of a call before another that failed", situation{state: is(notify.Sent)}, older, "failed, the end (undelivered: recipient_rejected), next"},
		{"failed after delivered", situation{state: is(notify.Delivered)}, failed, nothing},
		{"failed after the notification's time", situation{state: is(notify.Sent, expired)}, failed, "failed, the end (undelivered: recipient_rejected)"},
		{"failed after the step's time only", situation{state: is(notify.Sent, overdue)}, failed, "failed, the end (undelivered: recipient_rejected), next"},
		{"failed after an acknowledgement", situation{state: is(notify.Sending, stop)}, failed, "failed, the end (undelivered: recipient_rejected) A+1"},
		{"delivered after an acknowledgement", situation{state: is(notify.Sending, stop)}, says(notify.Delivered), "delivered, the end (acknowledged), met A+1"},
		{"failed for no reason", situation{state: is(notify.Sent)}, fallback.Evidence{Status: notify.Failed, Last: true}, "failed, the end (undelivered), next"},
		{"sent while a repeat waits", situation{state: is(notify.Waiting, attempt, repeated)}, says(notify.Sent), "sent, receipt 72h0m0s, met"},
		{"sent while a repeat is queued", situation{state: is(notify.Queued, attempt, repeated)}, says(notify.Sent), "sent, receipt 72h0m0s, met"},
		{"sent while nobody knows", situation{state: is(notify.Uncertain, attempt)}, says(notify.Sent), "sent, receipt 72h0m0s, met"},
		{"failed while nobody knew", situation{state: is(notify.Uncertain, attempt)}, failed, "failed, the end (undelivered: recipient_rejected), next"},
		{"failed while a repeat waits", situation{state: is(notify.Waiting, attempt, repeated)}, failed, "failed, the end (undelivered: recipient_rejected), next"},
		{"failed, of a call before the one that nobody knows of", situation{state: is(notify.Uncertain, attempt, repeated)}, older, nothing},
		{"nothing known", situation{state: is(notify.Uncertain, attempt)}, says(""), nothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before := c.in.start()
			d, changed := fallback.Receive(before, c.in.policy(), c.e, noon)
			got := nothing
			if changed {
				got = story(before, d)
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestAnAccountThatHearsOfFailuresOnlyIsWaitedForADay(t *testing.T) {
	t.Parallel()
	accepted := fallback.Outcome{Kind: notify.Accepted}
	for _, c := range []struct {
		name   string
		change func(*fallback.Policy)
		want   string
	}{
		{"nothing can come", func(*fallback.Policy) {}, "sent, the end, met A+1"},
		{"a bounce can", func(p *fallback.Policy) { p.Reports = true }, "sent, receipt 24h0m0s, met A+1"},
		{"for as long as configured", func(p *fallback.Policy) { p.Reports, p.Window = true, time.Hour }, "sent, receipt 1h0m0s, met A+1"},
		{"which does not help who asks for a delivery", func(p *fallback.Policy) { p.Reports, p.Success = true, notify.UntilDelivered }, "sent, the end (no_receipt), next A+1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := policy(false)
			p.Observable = notify.Sent
			c.change(&p)
			if got := story(calling(), fallback.Decide(calling(), p, accepted, noon)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestAProviderIsAskedEverMoreSeldomAndOnceBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		wait time.Duration
		want []time.Duration
	}{
		{"three days", 72 * time.Hour, []time.Duration{
			time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 8 * time.Hour, 24 * time.Hour, 48 * time.Hour, 72*time.Hour - 10*time.Second,
		}},
		{"ninety seconds", 90 * time.Second, []time.Duration{time.Minute, 80 * time.Second}},
		{"a moment", 4 * time.Second, []time.Duration{3 * time.Second}},
		{"no time", 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []time.Duration
			now := noon
			for {
				at := fallback.PollAt(noon, noon.Add(c.wait), now)
				if at.IsZero() {
					break
				}
				if !at.After(now) {
					t.Fatalf("after %v it asks at %v", now.Sub(noon), at.Sub(noon))
				}
				got, now = append(got, at.Sub(noon)), at
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("asks after %v, want %v", got, c.want)
			}
		})
	}
}

// provider is a delivery whose calls, answers and receipts come in an order that
// rapid draws. What applies receipts and records answers is as in package dispatch.
type provider struct {
	*rapid.T
	p     fallback.Policy
	s     fallback.State
	d     fallback.Decision
	now   time.Time
	final bool

	calls   []fallback.Call
	flying  int // the call under way, -1 for none
	claimed bool
}

func (w *provider) take(d fallback.Decision) {
	w.d, w.s, w.claimed = d, d.State, false
	w.final = w.final || d.Final
}

// call starts one, if the delivery may be called now.
func (w *provider) call() bool {
	if w.final || w.claimed || w.flying >= 0 || !w.d.Requeue && w.d.Wait.Reason != notify.WaitBackoff && len(w.calls) > 0 {
		return false
	}
	e := fallback.Weigh(w.calls)
	switch {
	case e.Status != "" && e.Status != notify.Failed, e.Last:
		w.Fatalf("a call although receipts say %+v", e)
	}
	w.now = latest(w.now, w.d.Wait.Due)
	w.calls, w.flying, w.claimed = append(w.calls, fallback.Call{}), len(w.calls), true
	w.s.Status = notify.Sending
	return true
}

// answer gives the call under way its answer.
func (w *provider) answer(o notify.Outcome) {
	i := w.flying
	w.flying = -1
	w.calls[i].Outcome = o
	switch {
	case w.claimed:
		w.take(fallback.Decide(w.s, w.p, fallback.Outcome{Kind: o}, w.now))
	case o == notify.Accepted && w.final:
		w.correct(notify.Sent)
	case o == notify.Accepted && !slices.Contains(shown, w.s.Status):
		w.take(fallback.Decide(w.s, w.p, fallback.Outcome{Kind: o}, w.now))
	}
}

// receipt tells of one of the calls.
func (w *provider) receipt(i int, status notify.Status) {
	var kind notify.Outcome
	if status == notify.Failed {
		kind = notify.RecipientUnavailable
	}
	w.calls[i].Receive(status, kind)
	e := fallback.Weigh(w.calls)
	if w.final {
		if e.Status != "" {
			w.correct(e.Status)
		}
		return
	}
	was := w.s.Status
	if d, changed := fallback.Receive(w.s, w.p, e, w.now); changed {
		if slices.Contains(evidence, was) && d.Status.Rank() < was.Rank() {
			w.Fatalf("the status falls from %s to %s", was, d.Status)
		}
		w.take(d)
	}
}

func (w *provider) correct(s notify.Status) {
	if s.Rank() > w.s.Status.Rank() {
		w.s.Status = s
	}
}

// pass lets the wait for a receipt or for knowledge be over.
func (w *provider) pass() bool {
	if w.final || w.d.Wait.Reason != notify.WaitReceipt && w.d.Wait.Reason != notify.WaitReconcile {
		return false
	}
	w.now = latest(w.now, w.d.Wait.Due)
	w.take(fallback.Due(w.s, w.p, w.d.Wait.Reason, w.now))
	return true
}

func newProvider(t *rapid.T) *provider {
	p := policy(rapid.Bool().Draw(t, "last"))
	p.Success = rapid.SampledFrom([]notify.Criterion{notify.UntilAccepted, notify.UntilDelivered, notify.UntilRead}).Draw(t, "success")
	p.Observable = notify.Read
	p.OnUnknown = rapid.SampledFrom([]notify.UnknownPolicy{notify.Reconcile, notify.Resend, notify.FallBack}).Draw(t, "unknown")
	s := calling()
	s.Status, s.Ends = notify.Queued, s.Expires
	return &provider{T: t, p: p, s: s, now: noon, flying: -1}
}

var answers = []notify.Outcome{notify.Accepted, notify.Accepted, notify.Unknown, notify.Unknown, notify.ProviderUnavailable, notify.RecipientRejected}

// Whatever order answers, receipts and the ends of waits come in, no call is made
// that what was known made needless, the status never falls, and the end is what
// all of it together says.
func TestReceiptsInAnyOrderComeToTheSameEnd(t *testing.T) {
	for range 50 {
		rapid.Check(t, func(t *rapid.T) {
			w := newProvider(t)
			w.call()
			for range rapid.IntRange(1, 14).Draw(t, "events") {
				switch rapid.IntRange(0, 5).Draw(t, "event") {
				case 0:
					w.call()
				case 1:
					if w.flying >= 0 {
						w.answer(rapid.SampledFrom(answers).Draw(t, "answer"))
					}
				case 2:
					w.pass()
				default:
					i := rapid.IntRange(0, len(w.calls)-1).Draw(t, "of")
					w.receipt(i, rapid.SampledFrom(evidence).Draw(t, "receipt"))
				}
			}
			if w.flying >= 0 {
				w.answer(rapid.SampledFrom(answers).Draw(t, "answer"))
			}
			for !w.final {
				if w.call() {
					w.answer(rapid.SampledFrom(answers).Draw(t, "answer"))
				} else if !w.pass() {
					t.Fatalf("stuck: %+v", w.d)
				}
			}
			switch e := fallback.Weigh(w.calls); {
			case e.Status == notify.Delivered || e.Status == notify.Read, e.Status == notify.Failed:
				if w.s.Status != e.Status {
					t.Fatalf("ends %s, and all of it says %+v: %+v", w.s.Status, e, w.calls)
				}
			case slices.Contains([]notify.Status{notify.Delivered, notify.Read}, w.s.Status):
				t.Fatalf("ends %s, and nothing says so: %+v", w.s.Status, w.calls)
			}
			if w.s.Attempts > w.p.Attempts || len(w.calls) > w.p.Attempts {
				t.Fatalf("%d calls, %d counted, of %d", len(w.calls), w.s.Attempts, w.p.Attempts)
			}
		})
	}
}

// The receipts of one message, with repeats, in every order and with its answer
// and the step's end anywhere among them.
func TestEveryPermutationOfReceiptsGivesTheSameState(t *testing.T) {
	t.Parallel()
	const answer, end = notify.Status("answer"), notify.Status("end")
	for _, receipts := range [][]notify.Status{
		{notify.Sent, notify.Delivered},
		{notify.Sent, notify.Sent, notify.Failed},
		{notify.Failed, notify.Delivered},
		{notify.Sent, notify.Delivered, notify.Read, notify.Delivered},
		{notify.Sent, notify.Failed, notify.Failed, notify.Read},
	} {
		for _, o := range []notify.Outcome{notify.Accepted, notify.Unknown, notify.ProviderUnavailable} {
			for _, success := range []notify.Criterion{notify.UntilAccepted, notify.UntilDelivered} {
				var want fallback.State
				first := true
				permute(append([]notify.Status{answer, end}, receipts...), func(order []notify.Status) {
					p := policy(false)
					p.Observable, p.Success, p.OnUnknown = notify.Read, success, notify.Reconcile
					w := &provider{p: p, s: calling(), now: noon, flying: 0, claimed: true, calls: make([]fallback.Call, 1)}
					for _, event := range order {
						switch event {
						case answer:
							w.answer(o)
						case end:
							w.pass()
						default:
							w.receipt(0, event)
						}
					}
					got := fallback.State{Status: w.s.Status}
					if first {
						want, first = got, false
					}
					if got != want || len(w.calls) != 1 {
						t.Errorf("%s: %v ends %s, others %s", o, order, got.Status, want.Status)
					}
				})
			}
		}
	}
}

// permute calls do with every order of list.
func permute(list []notify.Status, do func([]notify.Status)) {
	var walk func(int)
	walk = func(n int) {
		if n == len(list) {
			do(list)
			return
		}
		for i := n; i < len(list); i++ {
			list[n], list[i] = list[i], list[n]
			walk(n + 1)
			list[n], list[i] = list[i], list[n]
		}
	}
	walk(0)
}
