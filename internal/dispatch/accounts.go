package dispatch

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// usual is how many accounts of a channel cost no allocation.
const usual = 4

// candidates appends the accounts that a delivery may go through to dst, in the
// order in which they are asked: the configured one, or where accounts have
// weights, one that is the delivery's own, so that its retries stay where they
// are. Those without a weight come last then.
func (r *Registry) candidates(dst []*Account, c notify.Channel, project, pinned, provider string, key uint64) []*Account {
	weighted := false
	for _, a := range r.channels[c].Accounts {
		if (pinned == "" || a.Provider.Info().Account == pinned) && a.serves(project, provider) {
			dst = append(dst, a)
			weighted = weighted || a.Weight > 0
		}
	}
	if weighted && len(dst) > 1 {
		// Weighted rendezvous hashing: each account comes first in proportion to its
		// weight, and a change of one moves only what it must.
		slices.SortStableFunc(dst, func(a, b *Account) int {
			switch x, y := a.race(key), b.race(key); {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		})
	}
	return dst
}

// race is when the account would come in for a delivery: the first one has it.
func (a *Account) race(key uint64) float64 {
	if a.Weight <= 0 {
		return math.Inf(1)
	}
	return -math.Log(1-draw(key, a.Provider.Info().Account, 1)) / a.Weight
}

// keyOf is a number that stands for a delivery, whichever round and attempt it is
// in.
func keyOf(id uuid.UUID, step, target int16) uint64 {
	high, low := binary.LittleEndian.Uint64(id[:8]), binary.LittleEndian.Uint64(id[8:])
	return mix(high ^ bits.RotateLeft64(low, 32) ^ uint64(uint16(step))<<48 ^ uint64(uint16(target))<<32)
}

// draw is a number in [0, 1) that is always the same for a delivery, an account
// and a use, and else as good as random.
func draw(key uint64, account string, use uint64) float64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(account) {
		h = (h ^ uint64(account[i])) * 1099511628211
	}
	return float64(mix(key^h^use<<60)>>11) / (1 << 53)
}

// mix is the finalizer of SplitMix64: every bit of x changes half of the result's.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// interchangeable reports whether the accounts of a channel are different ways to
// a person, each with limits of its own below it. Elsewhere what is narrower than
// an account is the recipient's: a device, a conversation, a webhook's host, which
// another account would find in the same state.
func interchangeable(c notify.Channel) bool {
	switch c {
	case notify.SMS, notify.WhatsApp, notify.Email:
		return true
	case notify.Push, notify.Slack, notify.Webhook:
	}
	return false
}

// Group names those accounts of a channel that carry each other's deliveries.
func (a *Account) Group() string {
	info := a.Provider.Info()
	switch {
	case a.Hidden:
		return "hidden"
	case interchangeable(info.Channel):
		return "any"
	}
	return info.Provider
}

// Alternatives returns the accounts that carry what an account's scope cannot:
// the others of its group. A narrower scope has
// none.
func (r *Registry) Alternatives(scope string) []string {
	if strings.Contains(scope, "/") {
		return nil
	}
	for _, c := range notify.Channels() {
		a := r.named(c, scope)
		if a == nil {
			continue
		}
		var out []string
		for _, b := range r.channels[c].Accounts {
			if a != b && a.Group() == b.Group() {
				out = append(out, b.Provider.Info().Account)
			}
		}
		return out
	}
	return nil
}

// elsewhere reports whether a delivery may go through an account that is not among
// those named.
func (r *Registry) elsewhere(d *store.Delivery, not ...string) bool {
	for _, a := range r.channels[d.Channel].Accounts {
		name := a.Provider.Info().Account
		if (d.Pinned == "" || d.Pinned == name) && a.serves(d.Project, d.Provider) &&
			!slices.Contains(not, name) && !slices.Contains(d.Refused, name) {
			return true
		}
	}
	return false
}

// called returns the account that a delivery was last called through, or would be
// asked first where it has not been, or that one is gone; nil for none.
func (r *Registry) called(d *store.Delivery) *Account {
	if d.Account != "" {
		if a := r.named(d.Channel, d.Account); a != nil {
			return a
		}
	}
	return r.pick(d.Channel, d.Project, d.Pinned, d.Provider)
}

// A delivery's scopes are relative to its account, and what they are is the
// provider's to say. Where accounts of several providers may have it, each scope
// is kept with its provider: "=meta=pair:…".
const qualifier = "="

// scopesFor returns those of a delivery's scopes that a provider goes by.
func scopesFor(provider string, scopes []string) []string {
	if len(scopes) == 0 || !strings.HasPrefix(scopes[0], qualifier) {
		return scopes
	}
	var out []string
	for _, s := range scopes {
		if rest, ok := strings.CutPrefix(s, qualifier+provider+qualifier); ok {
			out = append(out, rest)
		}
	}
	return out
}

// scopes returns the scopes of a target, for all accounts that may have it.
func (r *Registry) scopes(c notify.Channel, project, pinned string, t notify.Target) []string {
	var room [usual]*Account
	var first *Account
	several := false
	all := r.candidates(room[:0], c, project, pinned, channels.RequiredProvider(t), 0)
	for _, a := range all {
		if first == nil {
			first = a
		}
		several = several || a.Provider.Info().Provider != first.Provider.Info().Provider
	}
	if first == nil {
		return nil
	}
	if !several {
		return scopesOfTarget(first, t)
	}
	var out, done []string
	for _, a := range all {
		provider := a.Provider.Info().Provider
		if slices.Contains(done, provider) {
			continue
		}
		done = append(done, provider)
		for _, s := range scopesOfTarget(a, t) {
			out = append(out, qualifier+provider+qualifier+s)
		}
	}
	return out
}

func scopesOfTarget(a *Account, t notify.Target) []string {
	if s, ok := a.Provider.(channels.Scoper); ok {
		return s.Scopes(t)
	}
	return nil
}
