package fallback_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func chained(mode notify.Mode, p notify.Priority, steps ...notify.Step) *notify.Notification {
	return &notify.Notification{Mode: mode, Priority: p, Chain: steps, SendAt: noon, ExpiresAt: noon.Add(24 * time.Hour)}
}

func TestPolicyFillsInDefaults(t *testing.T) {
	type want struct {
		success  notify.Criterion
		attempts int
		unknown  notify.UnknownPolicy
		last     bool
	}
	named := notify.Step{Channel: notify.SMS, Success: notify.UntilRead, Attempts: 2, OnUnknown: notify.FallBack}
	tests := []struct {
		name    string
		n       *notify.Notification
		account notify.UnknownPolicy
		want    want
	}{
		{"sms reconciles", chained(notify.First, notify.Normal, notify.Step{Channel: notify.SMS}), "", want{notify.UntilAccepted, 4, notify.Reconcile, true}},
		{"push resends", chained(notify.First, notify.Normal, notify.Step{Channel: notify.Push}), "", want{notify.UntilAccepted, 4, notify.Resend, true}},
		{"the account's policy wins over the channel's", chained(notify.First, notify.Normal, notify.Step{Channel: notify.SMS}), notify.AssumeSent, want{notify.UntilAccepted, 4, notify.AssumeSent, true}},
		{"the step's wins over both", chained(notify.First, notify.Normal, named), notify.AssumeSent, want{notify.UntilRead, 2, notify.FallBack, true}},
		{"a step with a next one is not the last", chained(notify.First, notify.Normal, named, named), "", want{notify.UntilRead, 2, notify.FallBack, false}},
		{"in mode all no step follows from another", chained(notify.All, notify.Normal, named, named), "", want{notify.UntilRead, 2, notify.FallBack, true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := fallback.NewPolicy(tt.n, 0, tt.account)
			if got := (want{p.Success, p.Attempts, p.OnUnknown, p.Last}); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestStepEnds(t *testing.T) {
	plain, brief := notify.Step{Channel: notify.SMS}, notify.Step{Channel: notify.SMS, Within: notify.Duration(10 * time.Second)}
	week := notify.Step{Channel: notify.SMS, Within: notify.Duration(168 * time.Hour)}
	day := 24 * time.Hour
	tests := []struct {
		name  string
		n     *notify.Notification
		step  int
		start time.Duration // after noon
		want  time.Duration
	}{
		{"after two minutes where a next one exists", chained(notify.First, notify.Normal, plain, plain), 0, 0, 2 * time.Minute},
		{"counted from when it becomes due", chained(notify.First, notify.Normal, plain, plain, plain), 1, time.Hour, time.Hour + 2*time.Minute},
		{"after 30 s where it is critical", chained(notify.First, notify.Critical, plain, plain), 0, 0, 30 * time.Second},
		{"with the notification where it is the last", chained(notify.First, notify.Critical, plain, plain), 1, time.Hour, day},
		{"with the notification in mode all", chained(notify.All, notify.Normal, plain, plain), 0, 0, day},
		{"when the caller says", chained(notify.First, notify.Critical, brief, plain), 0, 0, 10 * time.Second},
		{"when the caller says, also on the last", chained(notify.First, notify.Normal, brief), 0, time.Minute, 70 * time.Second},
		{"when the caller says, also in mode all", chained(notify.All, notify.Normal, brief, plain), 0, 0, 10 * time.Second},
		{"never after the notification", chained(notify.First, notify.Normal, week, plain), 0, time.Hour, day},
		{"never after the notification, by default", chained(notify.First, notify.Normal, plain, plain), 0, day - time.Minute, day},
		{"at once when it starts too late", chained(notify.First, notify.Normal, plain, plain), 0, day + time.Minute, day},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := fallback.Ends(tt.n, tt.step, noon.Add(tt.start)).Sub(noon); got != tt.want {
				t.Errorf("ends after %v, want %v", got, tt.want)
			}
		})
	}
}
