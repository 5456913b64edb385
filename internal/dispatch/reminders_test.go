package dispatch

import (
	"slices"
	"testing"
	"time"
)

func TestNodesAreRemindedOfWhatRiverDoesNotTellThem(t *testing.T) {
	t.Parallel()
	r, at := newReminders(nil), time.Now()
	due := func(after time.Duration) []string {
		queues := r.take(at.Add(after))
		slices.Sort(queues)
		return queues
	}
	r.inserted("sms", at)
	if got := due(time.Second); got != nil {
		t.Errorf("reminded of %v, which River told of", got)
	}
	r.inserted("sms", at.Add(time.Millisecond))
	r.inserted("email", at.Add(time.Millisecond))
	r.inserted("sms", at.Add(2*time.Millisecond))
	r.inserted("email", at.Add(fetchCooldown))
	if got := due(remindAfter); got != nil {
		t.Errorf("reminded of %v, which may not be committed yet", got)
	}
	if got := due(remindAfter + time.Millisecond); !slices.Equal(got, []string{"sms"}) {
		t.Errorf("reminded of %v, want sms", got)
	}
	r.inserted("sms", at.Add(2*fetchCooldown))
	if got := due(time.Second); !slices.Equal(got, []string{"email"}) {
		t.Errorf("reminded of %v, want email", got)
	}
}
