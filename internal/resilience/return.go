package resilience

import "time"

// Calls come back to a scope whose breaker closed little by little where another
// account carries them meanwhile: a provider that is just up again, or only seems
// to be, must not get all of them at once.
const (
	// DefaultReturn is how long that takes after the first trip.
	DefaultReturn = time.Minute
	// MaxReturn is the longest: each trip since it was last healthy for an hour
	// doubles the time, so that what fails again and again is not gone back to as
	// often.
	MaxReturn = 8 * time.Minute
	// returnFloor is the least part of the calls that it is given, and proven how
	// many successes it takes before time alone decides.
	returnFloor = 0.05
	proven      = 20
)

// ReturnTime is how long calls take to come back in full after a breaker closed
// that has opened so often since it was last healthy.
func ReturnTime(trips int) time.Duration {
	return min(double(DefaultReturn, max(trips-1, 0), MaxReturn), MaxReturn)
}

// ReturnShare is the part of the calls that may go to a scope again so long after
// its breaker closed: it grows evenly to 1.
func ReturnShare(since time.Duration, trips int) float64 {
	return min(max(float64(since)/float64(ReturnTime(trips)), returnFloor), 1)
}

// share is [ReturnShare] by what this process has seen since the breaker closed:
// not much before calls have succeeded, and next to nothing while they fail.
func (v *scopeView) share(now time.Time) float64 {
	if v.closedAt.IsZero() || v.record.State != Closed || v.record.Forced != nil {
		return 1
	}
	share := ReturnShare(now.Sub(v.closedAt), v.record.Trips)
	if share >= 1 {
		return 1
	}
	t := v.window.Tally(now)
	if t.Streak > 0 {
		return returnFloor
	}
	return max(min(share, float64(t.Calls-t.Failures)/proven), returnFloor)
}
