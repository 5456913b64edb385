package dispatch

import (
	"slices"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// PlannedStep is how a step would be sent if its notification were accepted now.
type PlannedStep struct {
	Targets  int
	Accounts []string // that would be called, in the order of the targets, each once
	// Passed are the accounts that would come before those, and why they do not.
	Passed []PassedOver
	// Held are scopes below an account to which no call may start now.
	Held    []string
	Preview channels.Preview
	// Problems are why the notification would be refused.
	Problems []notify.Problem
	// Latest is when the step is due at the latest, if one before it takes all of
	// its time.
	Latest time.Time
}

// PassedOver is an account that another one is called for.
type PassedOver struct {
	Account string
	Because string    // a reason to wait, or one of the Passed constants of fallback
	Until   time.Time // when that may end; zero where nobody knows
}

// Fares tells how a call through an account would be answered now.
type Fares func(a *Account, scopes []string) resilience.Health

// Plan says how a notification would be sent, where held are the scopes to which
// no call may start now, and accounts fare as fares says. It writes nothing.
func (r *Registry) Plan(n *notify.Notification, held []string, fares Fares, now time.Time) []PlannedStep {
	out := make([]PlannedStep, len(n.Chain))
	due := n.SendAt
	problems := r.checkLinks(n)
	n = r.linked(n)
	for i := range n.Chain {
		out[i] = r.plan(n, i, held, fares, now)
		out[i].Latest = due
		if n.Mode == notify.First {
			due = fallback.Ends(n, i, due)
		}
	}
	out[0].Problems = append(out[0].Problems, problems...)
	return out
}

func (r *Registry) plan(n *notify.Notification, i int, held []string, fares Fares, now time.Time) PlannedStep {
	step := n.Chain[i]
	targets := n.To.Targets(step.Channel)
	p := PlannedStep{Targets: len(targets)}
	add := func(problem *notify.Problem) {
		if problem != nil && !slices.Contains(p.Problems, *problem) {
			p.Problems = append(p.Problems, *problem)
		}
	}
	for j, target := range targets {
		a, passed := r.planned(n, i, j, fares, now)
		for _, o := range passed {
			if !slices.Contains(p.Passed, o) {
				p.Passed = append(p.Passed, o)
			}
		}
		if a == nil {
			problem := noAccount(i, step)
			add(&problem)
			continue
		}
		m, account := message(n, i, j, 0), a.Provider.Info().Account
		if !slices.Contains(p.Accounts, account) {
			p.Accounts = append(p.Accounts, account)
		}
		if p.Preview == (channels.Preview{}) {
			p.Preview = channels.PreviewOf(a.Provider, m)
		}
		if checker, ok := a.Provider.(channels.Checker); ok {
			add(problemOf(checker.Check(m)))
		}
		if s, ok := a.Provider.(channels.Scoper); ok {
			for _, scope := range s.Scopes(target) {
				if name := account + "/" + scope; slices.Contains(held, name) && !slices.Contains(p.Held, name) {
					p.Held = append(p.Held, name)
				}
			}
		}
	}
	return p
}

// planned returns the account that a target would be called through, nil if none
// may, and those passed over for it.
func (r *Registry) planned(n *notify.Notification, i, j int, fares Fares, now time.Time) (*Account, []PassedOver) {
	step := n.Chain[i]
	target := n.To.Targets(step.Channel)[j]
	key := keyOf(n.ID, int16(i), int16(j))
	accounts := r.candidates(nil, step.Channel, n.Project, step.Account, channels.RequiredProvider(target), key)
	if len(accounts) == 0 {
		return nil, nil
	}
	of := make([]fallback.Candidate, len(accounts))
	for k, a := range accounts {
		h := fares(a, scopesOfTarget(a, target))
		of[k] = fareOf(a, &h, key)
	}
	asked := fallback.Asked{Priority: n.Priority, Stay: -1, Ends: fallback.Ends(n, i, now)}
	chosen := fallback.Choose(of, asked, now)
	if chosen < 0 {
		b, _ := fallback.Soonest(of)
		chosen = max(slices.IndexFunc(of, func(c fallback.Candidate) bool { return c.Bar == b }), 0)
	}
	var passed []PassedOver
	for k := range of[:chosen] {
		if why := asked.Why(&of[k], now); why != "" {
			passed = append(passed, PassedOver{accounts[k].Provider.Info().Account, why, of[k].Bar.Until})
		}
	}
	return accounts[chosen], passed
}
