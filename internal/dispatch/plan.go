package dispatch

import (
	"slices"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// PlannedStep is how a step would be sent if its notification were accepted now.
type PlannedStep struct {
	Targets  int
	Accounts []string // that would be called, in the order of the targets, each once
	// Held are scopes below an account to which no call may start now.
	Held    []string
	Preview channels.Preview
	// Problems are why the notification would be refused.
	Problems []notify.Problem
	// Latest is when the step is due at the latest, if one before it takes all of
	// its time.
	Latest time.Time
}

// Plan says how a notification would be sent, where held are the scopes to which
// no call may start now. It writes nothing.
func (r *Registry) Plan(n *notify.Notification, held []string) []PlannedStep {
	out := make([]PlannedStep, len(n.Chain))
	due := n.SendAt
	problems := r.checkLinks(n)
	n = r.linked(n)
	for i := range n.Chain {
		out[i] = r.plan(n, i, held)
		out[i].Latest = due
		if n.Mode == notify.First {
			due = fallback.Ends(n, i, due)
		}
	}
	out[0].Problems = append(out[0].Problems, problems...)
	return out
}

func (r *Registry) plan(n *notify.Notification, i int, held []string) PlannedStep {
	step := n.Chain[i]
	targets := n.To.Targets(step.Channel)
	p := PlannedStep{Targets: len(targets)}
	add := func(problem *notify.Problem) {
		if problem != nil && !slices.Contains(p.Problems, *problem) {
			p.Problems = append(p.Problems, *problem)
		}
	}
	for j, target := range targets {
		a := r.pick(step.Channel, n.Project, step.Account, channels.RequiredProvider(target))
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
