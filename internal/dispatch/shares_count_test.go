package dispatch

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestAShareIsOfWhatIsInTheQueueNow(t *testing.T) {
	t.Parallel()
	k := store.Share{Project: "p", Channel: notify.SMS, Priority: notify.Normal}
	at := time.Now()
	// takes counts how many more fit.
	takes := func(s *shares) (n int) {
		for s.take(k, at) {
			n++
		}
		return n
	}
	s := newShares(10)
	if n := takes(s); n != 10 {
		t.Errorf("%d fit into a share of ten", n)
	}
	s.fetched(k, 4)
	if n := takes(s); n != 4 {
		t.Errorf("%d fit once four were fetched", n)
	}
	// The count misses what was put there just now, but not what was fetched since.
	s.fetched(k, 7)
	at = at.Add(10 * time.Millisecond)
	s.set(map[store.Share]int{}, at)
	if n := takes(s); n != 7 {
		t.Errorf("%d fit, although eleven of fourteen were fetched", n)
	}
	at = at.Add(3 * unseen)
	s.set(map[store.Share]int{k: 6}, at)
	if n := takes(s); n != 4 {
		t.Errorf("%d fit beside six that were counted", n)
	}
	s.fetched(k, 100) // others' as well
	s.fetched(store.Share{Project: "q"}, 1)
	if n := takes(s); n != 10 {
		t.Errorf("%d fit into an empty share", n)
	}
}
