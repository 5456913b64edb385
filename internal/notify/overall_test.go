package notify_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// ended and open are deliveries with the given statuses, in one step.
func ended(statuses ...notify.Status) []notify.DeliveryView { return views(true, statuses) }
func open(statuses ...notify.Status) []notify.DeliveryView  { return views(false, statuses) }

func views(final bool, statuses []notify.Status) []notify.DeliveryView {
	out := make([]notify.DeliveryView, len(statuses))
	for i, s := range statuses {
		out[i] = notify.DeliveryView{Status: s, Final: final}
	}
	return out
}

func TestStepHasComeAsFarAsItsBestTarget(t *testing.T) {
	tests := []struct {
		name string
		in   []notify.DeliveryView
		want notify.Status
	}{
		{"a step that has not begun", nil, notify.Pending},
		{"a target that has not begun", open(notify.Pending), notify.Pending},
		{"the best of the accepted", ended(notify.Failed, notify.Sent, notify.Delivered), notify.Delivered},
		{"one accepted device is enough", slices.Concat(ended(notify.Failed), open(notify.Sending, notify.Sent)), notify.Sent},
		{"the furthest of the open", open(notify.Waiting, notify.Sending, notify.Uncertain), notify.Uncertain},
		{"open ones outweigh those that failed", slices.Concat(ended(notify.Failed), open(notify.Waiting)), notify.Waiting},
		{"also where they have not begun", slices.Concat(ended(notify.Failed), open(notify.Pending)), notify.Pending},
		{"failed is the worst end", ended(notify.Blocked, notify.Failed, notify.Lapsed, notify.Canceled), notify.Failed},
		{"then expired", ended(notify.Blocked, notify.Lapsed, notify.Canceled), notify.Lapsed},
		{"then canceled", ended(notify.Blocked, notify.Canceled), notify.Canceled},
		{"then suppressed", ended(notify.Blocked, notify.Blocked), notify.Blocked},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := notify.StepStatus(tt.in); got != tt.want {
				t.Errorf("%v is %s, want %s", tt.in, got, tt.want)
			}
		})
	}
}

func TestOverallStatus(t *testing.T) {
	type steps = [][]notify.DeliveryView
	const none, canceled = false, true
	tests := []struct {
		name     string
		mode     notify.Mode
		steps    steps
		canceled bool
		want     notify.Status
		final    bool
	}{
		{"nothing has begun", notify.First, steps{nil, nil}, none, notify.Queued, false},
		{"nothing had begun before the cancel", notify.First, steps{nil, nil}, canceled, notify.Canceled, true},
		{"a step that has not begun", notify.First, steps{open(notify.Pending), nil}, none, notify.Queued, false},
		{"queued until the first call", notify.First, steps{open(notify.Waiting, notify.Queued), nil}, none, notify.Queued, false},
		{"sending in the first call", notify.First, steps{open(notify.Sending), nil}, none, notify.Sending, false},
		{"sending while nobody knows", notify.First, steps{open(notify.Uncertain), nil}, none, notify.Sending, false},
		{"sending between two steps", notify.First, steps{ended(notify.Failed), open(notify.Queued)}, none, notify.Sending, false},
		{"queued where the first step needed no call", notify.First, steps{ended(notify.Blocked), open(notify.Queued)}, none, notify.Queued, false},
		{"sending while one device is still tried", notify.First, steps{slices.Concat(ended(notify.Sent), open(notify.Waiting))}, none, notify.Sending, false},
		{"a failed receipt that nobody has decided on", notify.First, steps{open(notify.Failed)}, none, notify.Sending, false},
		{"sent while receipts may come", notify.First, steps{open(notify.Sent), nil}, none, notify.Sent, false},
		{"sent for good", notify.First, steps{ended(notify.Sent), nil}, none, notify.Sent, true},
		{"delivered by the second step", notify.First, steps{ended(notify.Failed), ended(notify.Delivered)}, none, notify.Delivered, true},
		{"an accepted step counts although a later one failed", notify.First, steps{ended(notify.Sent), ended(notify.Failed)}, none, notify.Sent, true},
		{"a late receipt of an earlier step counts", notify.First, steps{ended(notify.Read), ended(notify.Sent)}, none, notify.Read, true},
		{"failed where every step did", notify.First, steps{ended(notify.Failed), ended(notify.Failed)}, none, notify.Failed, true},
		{"expired where the last step was", notify.First, steps{ended(notify.Failed), ended(notify.Lapsed), nil}, none, notify.Lapsed, true},
		{"suppressed where every step was", notify.First, steps{ended(notify.Blocked), ended(notify.Blocked)}, none, notify.Blocked, true},
		{"failed where only the last was suppressed", notify.First, steps{ended(notify.Failed), ended(notify.Blocked)}, none, notify.Failed, true},
		{"canceled by an acknowledgement before the call", notify.First, steps{ended(notify.Canceled), nil}, none, notify.Canceled, true},
		{"a cancel waits for the call in flight", notify.First, steps{open(notify.Sending)}, canceled, notify.Sending, false},
		{"and outweighs what it turned out to be", notify.First, steps{ended(notify.Sent)}, canceled, notify.Canceled, true},
		{"also in mode all", notify.All, steps{ended(notify.Read), ended(notify.Canceled)}, canceled, notify.Canceled, true},

		{"all: the least that a step came to", notify.All, steps{ended(notify.Delivered), ended(notify.Sent), ended(notify.Read)}, none, notify.Sent, true},
		{"all: a step has come as far as its best target", notify.All, steps{ended(notify.Failed, notify.Read), ended(notify.Delivered)}, none, notify.Delivered, true},
		{"all: one failed", notify.All, steps{ended(notify.Delivered), ended(notify.Failed)}, none, notify.PartiallyFailed, true},
		{"all: one suppressed", notify.All, steps{ended(notify.Blocked), ended(notify.Sent)}, none, notify.PartiallyFailed, true},
		{"all: every one failed, the worst counts", notify.All, steps{ended(notify.Blocked), ended(notify.Failed), ended(notify.Lapsed)}, none, notify.Failed, true},
		{"all: every one expired or suppressed", notify.All, steps{ended(notify.Blocked), ended(notify.Lapsed)}, none, notify.Lapsed, true},
		{"all: one still open", notify.All, steps{ended(notify.Failed), open(notify.Queued)}, none, notify.Sending, false},
		{"all: one awaits receipts", notify.All, steps{ended(notify.Failed), open(notify.Sent)}, none, notify.PartiallyFailed, false},
		{"all: steps without deliveries have no say", notify.All, steps{ended(notify.Sent), nil}, none, notify.Sent, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, final := notify.Overall(tt.mode, tt.steps, tt.canceled); got != tt.want || final != tt.final {
				t.Errorf("%s, final: %t; want %s, final: %t", got, final, tt.want, tt.final)
			}
		})
	}
}

var (
	successes = []notify.Status{notify.Sent, notify.Delivered, notify.Read}
	failures  = []notify.Status{notify.Failed, notify.Lapsed, notify.Canceled, notify.Blocked}
	unfinal   = []notify.Status{notify.Pending, notify.Waiting, notify.Queued, notify.Sending, notify.Uncertain, notify.Failed}
)

func drawSteps(t *rapid.T) [][]notify.DeliveryView {
	delivery := rapid.Custom(func(t *rapid.T) notify.DeliveryView {
		if rapid.Bool().Draw(t, "final") {
			return notify.DeliveryView{Status: rapid.SampledFrom(slices.Concat(successes, failures)).Draw(t, "end"), Final: true}
		}
		return notify.DeliveryView{Status: rapid.SampledFrom(slices.Concat(successes, unfinal)).Draw(t, "status")}
	})
	return rapid.SliceOfN(rapid.SliceOfN(delivery, 0, 3), 0, 4).Draw(t, "steps")
}

func TestOverallSaysNoMoreThanTheDeliveries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom([]notify.Mode{notify.First, notify.All}).Draw(t, "mode")
		canceled := rapid.Bool().Draw(t, "canceled")
		byStep := drawSteps(t)
		all := slices.Concat(byStep...)
		has := func(is func(notify.DeliveryView) bool) bool { return slices.ContainsFunc(all, is) }
		success := func(d notify.DeliveryView) bool { return slices.Contains(successes, d.Status) }

		s, final := notify.Overall(mode, byStep, canceled)
		moving := has(func(d notify.DeliveryView) bool { return !d.Final && !success(d) })
		switch want := !has(func(d notify.DeliveryView) bool { return !d.Final }) && (len(all) > 0 || canceled); {
		case !slices.Contains(notify.NotificationStatuses(), s):
			t.Fatalf("%q is no status of a notification", s)
		case final != want:
			t.Fatalf("final: %t, want %t", final, want)
		case (s == notify.Queued || s == notify.Sending) != (moving || len(all) == 0 && !canceled):
			t.Fatalf("%s, while something moves: %t", s, moving)
		case canceled && !moving && s != notify.Canceled:
			t.Fatalf("canceled, and %s", s)
		case slices.Contains(successes, s) && !has(func(d notify.DeliveryView) bool { return d.Status == s }):
			t.Fatalf("%s, and no delivery is", s)
		case s == notify.PartiallyFailed && (mode != notify.All || !has(success)):
			t.Fatalf("partially failed in mode %s, with a success: %t", mode, has(success))
		case mode == notify.First && !canceled && !moving && has(success) != slices.Contains(successes, s):
			t.Fatalf("%s, with a success: %t", s, has(success))
		}
	})
}

func TestOverallDoesNotDependOnTheOrderOfTargets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom([]notify.Mode{notify.First, notify.All}).Draw(t, "mode")
		byStep := drawSteps(t)
		before, final := notify.Overall(mode, byStep, false)
		for i := range byStep {
			byStep[i] = rapid.Permutation(byStep[i]).Draw(t, "targets")
		}
		if mode == notify.All {
			byStep = rapid.Permutation(byStep).Draw(t, "steps of mode all")
		}
		if after, still := notify.Overall(mode, byStep, false); after != before || still != final {
			t.Fatalf("%s, final: %t; in another order %s, final: %t", before, final, after, still)
		}
	})
}

// A late receipt corrects a delivery that has ended; it never makes the whole worse.
func TestBetterEvidenceNeverMakesANotificationWorse(t *testing.T) {
	worth := func(s notify.Status) int {
		switch {
		case slices.Contains(successes, s):
			return 2 + s.Rank()
		case s == notify.PartiallyFailed:
			return 1
		}
		return 0
	}
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom([]notify.Mode{notify.First, notify.All}).Draw(t, "mode")
		byStep := drawSteps(t)
		before, _ := notify.Overall(mode, byStep, false)
		for i := range byStep {
			for j := range byStep[i] {
				d := &byStep[i][j]
				if better := notify.Best(d.Status, notify.Delivered); d.Final && better != d.Status && rapid.Bool().Draw(t, "corrected") {
					d.Status = better
				}
			}
		}
		after, _ := notify.Overall(mode, byStep, false)
		if worth(after) < worth(before) {
			t.Fatalf("was %s, and is %s after better evidence: %v", before, after, byStep)
		}
	})
}
