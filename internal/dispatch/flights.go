package dispatch

import (
	"sync"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// flights counts the calls under way, by channel and by destination, so that a
// provider that hangs ties up its own channel only and one slow destination only
// a quarter of that.
type flights struct {
	mu          sync.Mutex
	channel     map[notify.Channel]int
	destination map[string]int
}

func newFlights() *flights {
	return &flights{channel: map[notify.Channel]int{}, destination: map[string]int{}}
}

// channelScope is the scope of what holds a whole channel: a pause, or too many
// calls under way.
func channelScope(c notify.Channel) string { return "channel:" + string(c) }

// take asks for a place; destination may be empty. It returns the scope that is
// full, or nothing when the place was given and must be given back with leave.
func (f *flights) take(c notify.Channel, destination string, limit int) (full string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.channel[c] >= limit {
		return channelScope(c)
	}
	if destination != "" {
		if f.destination[destination] >= share(limit) {
			return destination
		}
		f.destination[destination]++
	}
	f.channel[c]++
	return ""
}

// share is the part of a channel's calls that one destination may hold.
func share(limit int) int { return max(limit/4, 1) }

// free returns how many more calls of a channel, and of a destination of it,
// could start.
func (f *flights) free(c notify.Channel, destination string, limit int) (channel, dest int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(limit-f.channel[c], 0), max(share(limit)-f.destination[destination], 0)
}

func (f *flights) leave(c notify.Channel, destination string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.channel[c]--
	if destination == "" {
		return
	}
	if f.destination[destination]--; f.destination[destination] == 0 {
		delete(f.destination, destination)
	}
}
