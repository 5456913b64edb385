package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Planner says how a notification would be sent, step by step. It writes nothing.
type Planner interface {
	Plan(n *notify.Notification) []PlannedStep
}

// PlannedStep is how a step would be sent now.
type PlannedStep struct {
	Targets  int
	Accounts []string // that would be called, each once
	Passed   []PassedOver
	Held     []string // scopes below an account to which no call may start now
	Preview  channels.Preview
	Problems []notify.Problem // why the notification would be refused
	Latest   time.Time        // when the step is due at the latest
}

// PassedOver is an account that another one would be called for.
type PassedOver struct {
	Account string
	Because string
	Until   time.Time // zero where nobody knows
}

// planView is the answer to a request with plan=true.
type planView struct {
	Acceptable bool            `json:"acceptable" doc:"The request would be accepted without plan."`
	Priority   notify.Priority `json:"priority" enum:"critical,high,normal,low"`
	Mode       notify.Mode     `json:"mode" enum:"first,all"`
	SendAt     time.Time       `json:"send_at"`
	ExpiresAt  time.Time       `json:"expires_at"`
	Steps      []plannedStep   `json:"steps" doc:"The chain with its defaults, in order."`
}

type plannedStep struct {
	StepRequest
	Targets       int           `json:"targets" doc:"How many addresses it would be sent to."`
	Accounts      []accountView `json:"accounts" doc:"Those that would be called, with breaker and gate as they are now."`
	Passed        []passedView  `json:"passed_over,omitempty" doc:"Accounts that would come before those and are passed over."`
	Held          []string      `json:"held,omitempty" doc:"What may not be called now although its account may: a sender, a host, a conversation."`
	Suppressed    []plannedBar  `json:"suppressed,omitempty" doc:"Addresses that may not be written to: nothing is sent to them, and where all of the step are, it is passed over."`
	Paused        bool          `json:"paused,omitzero" doc:"An operator has stopped the channel."`
	EarliestCall  *time.Time    `json:"earliest_call" doc:"When a call may start, if every step before fails at once; null while nobody knows."`
	LatestStart   time.Time     `json:"latest_start" doc:"When the step begins at the latest, if those before it take all of their time."`
	MaxObservable notify.Status `json:"max_observable,omitzero" enum:"sent,delivered,read" doc:"The best that can ever be known of it."`
	Preview       previewView   `json:"preview" doc:"What the person would see."`
	Problems      []ErrorDetail `json:"problems,omitempty" doc:"Why the request would be refused."`
}

type passedView struct {
	Account string     `json:"account"`
	Because string     `json:"because" enum:"breaker_open,throttled,paused,capacity,returning,probe" doc:"returning: its calls come back little by little. probe: its breaker waits for a message that is not critical to be tried with."`
	Until   *time.Time `json:"until" doc:"When that may end; null where nobody knows."`
}

type plannedBar struct {
	Target int        `json:"target" doc:"The address's place among those of the step, from 0."`
	Reason string     `json:"reason" example:"stop" doc:"Why, as GET /v1/suppressions says it."`
	Until  *time.Time `json:"until" doc:"When that ends; null for never."`
}

type previewView struct {
	Title    string `json:"title,omitzero"`
	Subject  string `json:"subject,omitzero"`
	Body     string `json:"body,omitzero"`
	Template string `json:"template,omitzero"`
	Segments int    `json:"segments,omitzero" doc:"Messages that an SMS is sent and billed as."`
	Encoding string `json:"encoding,omitzero" enum:"GSM-7,UCS-2"`
}

// planned answers what would become of a notification.
func (a *API) planned(ctx context.Context, n *notify.Notification) (*createOutput, error) {
	pauses, err := a.store.Pauses(ctx)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	bars, err := a.bars(ctx, n)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	v := planView{
		Acceptable: true, Priority: n.Priority, Mode: n.Mode, SendAt: n.SendAt.UTC(), ExpiresAt: n.ExpiresAt.UTC(),
		Steps: make([]plannedStep, len(n.Chain)),
	}
	health, best, now := a.accounts.Health(n.Project), a.account(n.Project), a.now()
	due := &n.SendAt
	for i, step := range a.plan.Plan(n) {
		s := planStep(n.Chain[i], step, health, pauses, now)
		s.Suppressed = barsOf(n, i, bars)
		s.MaxObservable, _ = best(n.Chain[i].Channel, n.Chain[i].Account)
		v.Acceptable = v.Acceptable && len(step.Problems) == 0
		if !s.Paused {
			s.EarliestCall = earliest(due, step.Accounts, health)
		}
		if n.Mode == notify.First && s.EarliestCall != nil && len(step.Problems) == 0 {
			due = s.EarliestCall
		}
		v.Steps[i] = s
	}
	out := &createOutput{Status: http.StatusOK, ContentType: jsonType}
	if out.Body, err = json.Marshal(&v); err != nil {
		return nil, a.internal(ctx, err)
	}
	return out, nil
}

// bars are the addresses of a notification that are suppressed.
func (a *API) bars(ctx context.Context, n *notify.Notification) (map[store.Address]store.Suppression, error) {
	if a.suppressions == nil {
		return nil, nil
	}
	var addresses []store.Address
	for _, step := range n.Chain {
		for _, t := range n.To.Targets(step.Channel) {
			addresses = append(addresses, store.Address{Channel: step.Channel, Hash: t.Hash(step.Channel)})
		}
	}
	list, err := a.suppressions.Suppressed(ctx, n.Project, addresses)
	if err != nil {
		return nil, err
	}
	out := map[store.Address]store.Suppression{}
	for _, s := range list {
		out[store.Address{Channel: s.Channel, Hash: s.Address}] = s
	}
	return out, nil
}

func barsOf(n *notify.Notification, step int, bars map[store.Address]store.Suppression) []plannedBar {
	var out []plannedBar
	c := n.Chain[step].Channel
	for i, t := range n.To.Targets(c) {
		if s, ok := bars[store.Address{Channel: c, Hash: t.Hash(c)}]; ok {
			out = append(out, plannedBar{Target: i, Reason: s.Reason, Until: utc(s.Until)})
		}
	}
	return out
}

func planStep(step notify.Step, p PlannedStep, health []AccountHealth, pauses []store.Pause, now time.Time) plannedStep {
	s := plannedStep{
		StepRequest: stepView(step), Targets: p.Targets, Held: p.Held, LatestStart: p.Latest.UTC(), Accounts: []accountView{},
		Paused: pauseOf(pauses, step.Channel) != nil, Preview: previewView(p.Preview),
	}
	for _, v := range accountsOf(health, step.Channel, now) {
		if slices.Contains(p.Accounts, v.Account) {
			s.Accounts = append(s.Accounts, v)
		}
	}
	for _, o := range p.Passed {
		s.Passed = append(s.Passed, passedView{o.Account, o.Because, utc(o.Until)})
	}
	for _, problem := range p.Problems {
		s.Problems = append(s.Problems, ErrorDetail{Pointer: problem.Pointer, Code: problem.Code, Detail: problem.Detail})
	}
	return s
}

// earliest is when the first of the accounts may be called, not before due; nil
// if nobody knows.
func earliest(due *time.Time, accounts []string, health []AccountHealth) *time.Time {
	var first *time.Time
	for _, h := range health {
		if !slices.Contains(accounts, h.Account) {
			continue
		}
		at := *due
		if h.Breaker.State == "open" {
			if h.Breaker.OpenUntil.IsZero() {
				continue
			}
			at = later(at, h.Breaker.OpenUntil)
		}
		at = later(at, h.GateUntil).UTC()
		if first == nil || at.Before(*first) {
			first = &at
		}
	}
	return first
}

func later(t, u time.Time) time.Time {
	if u.After(t) {
		return u
	}
	return t
}
