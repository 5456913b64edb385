package httpapi_test

import (
	"context"
	"slices"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// operations is the part of a fake that operators see.
type operations struct {
	states  []store.ScopeState // those not here are well
	events  []store.BreakerEvent
	actions []store.OperatorAction
	asked   []int // how many narrower scopes each time
}

func (f *fake) AllInfos() []channels.Info { return f.Infos("") }

func (f *fake) Sharing(string) (string, float64) { return "", 0 }

func (f *fake) MaxInFlight(notify.Channel) int { return 256 }

func (f *fake) ScopeStates(_ context.Context, accounts, scopes []string, narrower int) ([]store.ScopeState, error) {
	f.asked = append(f.asked, narrower)
	var out []store.ScopeState
	for _, name := range slices.Concat(accounts, scopes) {
		i := slices.IndexFunc(f.states, func(s store.ScopeState) bool { return s.Scope == name })
		if i < 0 {
			out = append(out, store.ScopeState{Scope: name, Breaker: resilience.BreakerStatus{State: resilience.Closed}})
			continue
		}
		out = append(out, f.states[i])
	}
	for _, s := range f.states {
		if narrower > 0 && !slices.Contains(accounts, s.Scope) {
			out = append(out, s)
		}
	}
	return out, f.err
}

func (f *fake) BreakerEvents(_ context.Context, scope string, limit int) ([]store.BreakerEvent, error) {
	var out []store.BreakerEvent
	for _, e := range f.events {
		if e.Scope == scope && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, f.err
}

func (f *fake) OperatorActions(_ context.Context, limit int) ([]store.OperatorAction, error) {
	return f.actions[:min(limit, len(f.actions))], f.err
}

func (f *fake) Operate(_ context.Context, scope string, action store.Action, by resilience.Override) error {
	f.note(action, scope, by)
	state := resilience.Open
	if action != store.ActionOpen {
		state = resilience.Closed
	}
	s := store.ScopeState{Scope: scope, Breaker: resilience.BreakerStatus{State: state, ChangedAt: noon, Forced: &by}}
	if action == store.ActionReset {
		s.Breaker.Forced = nil
	}
	f.states = append([]store.ScopeState{s}, f.states...)
	return f.err
}

func (f *fake) PauseChannel(_ context.Context, c notify.Channel, by, why string) error {
	f.note(store.ActionPause, string(c), resilience.Override{Who: by, Why: why})
	f.pauses = append(f.pauses, store.Pause{Channel: c, By: by, Reason: why, Since: noon})
	return f.err
}

func (f *fake) ResumeChannel(_ context.Context, c notify.Channel, by, why string) error {
	f.note(store.ActionResume, string(c), resilience.Override{Who: by, Why: why})
	f.pauses = slices.DeleteFunc(f.pauses, func(p store.Pause) bool { return p.Channel == c })
	return f.err
}

func (f *fake) note(action store.Action, target string, by resilience.Override) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	f.actions = append([]store.OperatorAction{{At: noon, Action: action, Target: target, By: by.Who, Why: by.Why, Until: by.Until}}, f.actions...)
}
