package dispatch

import (
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// bound is how many calls of a scope may be under way at once on this node.
type bound struct {
	scope  string
	places int
}

// bounds are what a call has to find a place in, all of them: its channel, and
// where there are such its account and its destination. Those without a scope bound
// nothing.
type bounds [3]bound

// boundsOf returns the bounds of a call of a channel, through one of its accounts.
func boundsOf(c Channel, a *Account, scopes []string) bounds {
	info := a.Provider.Info()
	b := bounds{{scope: channelScope(info.Channel), places: c.MaxInFlight}}
	if places := c.placesOf(a); places > 0 && (len(scopes) == 0 || a.maxCalls() > 0) {
		b[1] = bound{scope: info.Account, places: places}
	}
	if len(scopes) > 0 {
		b[2] = bound{scope: info.Account + "/" + scopes[len(scopes)-1], places: share(c.MaxInFlight)}
	}
	return b
}

// placesOf is how many calls an account may have under way, 0 for as many as its
// channel: those that it can make, and a share of the channel's where that has
// other accounts.
func (c Channel) placesOf(a *Account) int {
	n := a.maxCalls()
	if len(c.Accounts) < 2 {
		return n
	}
	if n == 0 {
		return share(c.MaxInFlight)
	}
	return min(n, share(c.MaxInFlight))
}

// maxCalls is how many calls the account can make at once, 0 for any number.
func (a *Account) maxCalls() int {
	if b, ok := a.Provider.(channels.Bounded); ok {
		return b.MaxCalls()
	}
	return 0
}

// bound returns the bound of a scope of a channel, as far as that can be told from
// the scope alone; it has no places where nothing bounds the scope.
func (r *Registry) bound(c notify.Channel, scope string) bound {
	channel := r.channels[c]
	b := bound{scope: scope}
	switch {
	case scope == channelScope(c):
		b.places = channel.MaxInFlight
	case strings.Contains(scope, "/"):
		b.places = share(channel.MaxInFlight)
	default:
		if a := r.named(c, scope); a != nil {
			b.places = channel.placesOf(a)
		}
	}
	return b
}

// share is the part of a channel's calls that one destination may hold.
func share(limit int) int { return max(limit/4, 1) }
