package dispatch

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// bounded is an account that can make so many calls at once.
type bounded struct {
	mute
	calls int
}

func (b bounded) MaxCalls() int { return b.calls }

func TestACallNeedsAPlaceOfAllThatItGoesThrough(t *testing.T) {
	t.Parallel()
	a, b := muted("a", notify.Email, "p"), muted("b", notify.Email, "p")
	withCalls := func(n int) *Account {
		return &Account{Provider: bounded{a.Provider.(mute), n}}
	}
	channel := bound{"channel:email", 64}
	for name, c := range map[string]struct {
		accounts []*Account
		scopes   []string
		want     bounds
	}{
		"the only account is its channel":                {accounts: []*Account{a}, want: bounds{channel}},
		"one of several has a quarter":                   {accounts: []*Account{a, b}, want: bounds{channel, {"a", 16}}},
		"a destination has a quarter":                    {accounts: []*Account{a, b}, scopes: []string{"wide", "narrow"}, want: bounds{channel, {}, {"a/narrow", 16}}},
		"an account has no more than it can make":        {accounts: []*Account{withCalls(3)}, want: bounds{channel, {"a", 3}}},
		"nor than its quarter":                           {accounts: []*Account{withCalls(40), b}, want: bounds{channel, {"a", 16}}},
		"and its destinations share what it can make":    {accounts: []*Account{withCalls(3)}, scopes: []string{"narrow"}, want: bounds{channel, {"a", 3}, {"a/narrow", 16}}},
		"what it can make beside others, to be complete": {accounts: []*Account{withCalls(3), b}, want: bounds{channel, {"a", 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := Channel{MaxInFlight: 64, Accounts: c.accounts}
			got := boundsOf(of, c.accounts[0], c.scopes)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(bound{})); diff != "" {
				t.Errorf("bounds (-want +got):\n%s", diff)
			}
			// What wakes the held must know of the same places.
			r := NewRegistry(map[notify.Channel]Channel{notify.Email: of})
			for _, b := range got {
				if b.scope != "" && r.bound(notify.Email, b.scope) != b {
					t.Errorf("the waker has %+v, want %+v", r.bound(notify.Email, b.scope), b)
				}
			}
		})
	}
}
