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

// take asks for a place; destination may be empty. The place must be given back
// with leave if ok.
func (f *flights) take(c notify.Channel, destination string, limit int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.channel[c] >= limit {
		return false
	}
	if destination != "" {
		if f.destination[destination] >= max(limit/4, 1) {
			return false
		}
		f.destination[destination]++
	}
	f.channel[c]++
	return true
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
