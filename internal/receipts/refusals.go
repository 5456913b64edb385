package receipts

import (
	"sync"
	"time"
)

const (
	// tellEvery is how often the same refusal is logged: somebody who tries signs,
	// or a secret that was changed at one side only, would fill the log.
	tellEvery = 10 * time.Second
	// maxRefusals bounds the memory. Accounts and reasons are few.
	maxRefusals = 1000
)

// refusals bounds how often the same refusal is told. The zero value has none.
type refusals struct {
	mu   sync.Mutex
	last map[refusal]*told
}

type refusal struct{ account, reason string }

type told struct {
	at   time.Time
	more int // since then
}

// tell notes a refusal and reports whether it is to be told now, and how many
// like it were not since the last one that was.
func (r *refusals) tell(account, reason string, now time.Time) (since int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil || len(r.last) >= maxRefusals {
		r.last = map[refusal]*told{}
	}
	key := refusal{account, reason}
	before := r.last[key]
	if before == nil {
		r.last[key] = &told{at: now}
		return 0, true
	}
	if now.Sub(before.at) < tellEvery {
		before.more++
		return 0, false
	}
	since = before.more
	*before = told{at: now}
	return since, true
}
