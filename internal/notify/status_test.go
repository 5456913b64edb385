package notify_test

import (
	"slices"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// statuses lists every status in the order of rank, those of equal rank together.
var statuses = [][]notify.Status{
	{notify.Pending},
	{notify.Waiting, notify.Queued},
	{notify.Sending},
	{notify.Uncertain},
	{notify.Sent},
	{notify.Failed, notify.PartiallyFailed, notify.Lapsed, notify.Canceled, notify.Blocked},
	{notify.Delivered},
	{notify.Read},
}

func TestStatusRanksByEvidence(t *testing.T) {
	for rank, equals := range statuses {
		for _, s := range equals {
			if got := s.Rank(); got != rank || !s.Valid() {
				t.Errorf("%s has rank %d, want %d; valid: %t", s, got, rank, s.Valid())
			}
		}
	}
	if s := notify.Status("lost"); s.Valid() || s.Rank() >= notify.Pending.Rank() {
		t.Errorf("an unknown word has rank %d; valid: %t", s.Rank(), s.Valid())
	}
}

func TestBestKeepsTheHigherRankAndTheFirstOfEquals(t *testing.T) {
	all := slices.Concat(statuses...)
	for _, s := range all {
		for _, other := range all {
			want := s
			if other.Rank() > s.Rank() {
				want = other
			}
			if got := notify.Best(s, other); got != want {
				t.Errorf("best of %s and %s is %s, want %s", s, other, got, want)
			}
		}
		if got := notify.Best("", s); got != s {
			t.Errorf("best of nothing and %s is %q", s, got)
		}
	}
}

func TestCriterionIsMetByItsEvidenceAndAnyBetter(t *testing.T) {
	met := map[notify.Criterion][]notify.Status{
		"":                       {notify.Sent, notify.Delivered, notify.Read},
		notify.UntilAccepted:     {notify.Sent, notify.Delivered, notify.Read},
		notify.UntilDelivered:    {notify.Delivered, notify.Read},
		notify.UntilRead:         {notify.Read},
		notify.UntilAcknowledged: nil,
		"praised":                nil,
	}
	for criterion, by := range met {
		for _, s := range slices.Concat(statuses...) {
			if got, want := criterion.MetBy(s), slices.Contains(by, s); got != want {
				t.Errorf("%q met by %s: %t, want %t", criterion, s, got, want)
			}
		}
		if got, want := criterion.Valid(), criterion != "" && criterion != "praised"; got != want {
			t.Errorf("%q valid: %t, want %t", criterion, got, want)
		}
	}
}

func TestNotificationStatusesHaveNoDuplicates(t *testing.T) {
	seen := map[notify.Status]bool{}
	for _, s := range notify.NotificationStatuses() {
		if seen[s] || !s.Valid() {
			t.Errorf("%s stands twice or is no status", s)
		}
		seen[s] = true
	}
}
