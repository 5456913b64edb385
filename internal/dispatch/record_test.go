package dispatch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestAWaitWithoutItsScopeIsHeldByNothing(t *testing.T) {
	t.Parallel()
	until := time.Unix(1000, 0)
	held := store.Result{Wait: &store.Wait{Reason: notify.WaitThrottled, Scope: "main/\x00", Held: true, Until: until, Due: until.Add(time.Hour)}}
	want := store.Wait{Reason: notify.WaitThrottled, Until: until, Due: until}
	if diff := cmp.Diff(want, *plainest(held).Wait); diff != "" {
		t.Errorf("wait (-want +got):\n%s", diff)
	}
	if !held.Wait.Held {
		t.Error("the caller's own result was changed")
	}
}
