package dispatch

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Account is one configured account, ready to send.
type Account struct {
	Provider channels.Provider
	// Timeout bounds one call; it must be positive.
	Timeout time.Duration
	// Projects that may use the account; none means all.
	Projects []string
	// OnUnknown is the account's policy; empty means the channel's default.
	OnUnknown notify.UnknownPolicy
	// Retry and SlowRetry space out calls after a failure of the provider and of
	// the recipient.
	Retry, SlowRetry resilience.Backoff
	Breaker          resilience.BreakerConfig
	// Budget bounds retries to a part of the first calls.
	Budget resilience.BudgetConfig
	// ReceiptWindow is how long receipts are awaited that nothing depends on; 0 for
	// the default, see [fallback.Policy].
	ReceiptWindow time.Duration
	// MaxPerSecond paces all calls of the account, over all nodes; 0 for no limit.
	MaxPerSecond float64
	// Weight is the account's part of its channel's deliveries, beside those of the
	// other accounts. Where none of them has any, they are asked in their order.
	Weight float64
	// Hidden: the account serves hidden projects and no others, see
	// [store.HiddenProject].
	Hidden bool
	// Schedule, if it has any, is how long to wait before each retry, whatever the
	// failure, in place of Retry and SlowRetry; the last one is for all that follow.
	// Up to a tenth is added to each, so that many do not come back at once.
	Schedule []time.Duration
}

// delay is how long to wait before a retry, counted from 0. spread is a random
// number in [0, 1).
func (a *Account) delay(b resilience.Backoff, retry int, spread float64) time.Duration {
	if len(a.Schedule) == 0 {
		return b.Delay(retry+1, spread)
	}
	wait := a.Schedule[min(max(retry, 0), len(a.Schedule)-1)]
	return wait + time.Duration(spread*float64(wait/10))
}

// paces are the rates that a call through the account must keep to: its own, and
// those that the provider is known to bear in narrower scopes.
func (a *Account) paces(scopes []string) []resilience.Pace {
	var out []resilience.Pace
	account := a.Provider.Info().Account
	if a.MaxPerSecond > 0 {
		limit := resilience.Limit{PerSecond: a.MaxPerSecond, Burst: max(int(a.MaxPerSecond), 1)}
		out = append(out, resilience.Pace{Scope: account, Limit: limit})
	}
	paced, ok := a.Provider.(channels.Paced)
	if !ok {
		return out
	}
	for _, s := range scopes {
		if perSecond, burst := paced.Pace(s); perSecond > 0 {
			limit := resilience.Limit{PerSecond: perSecond, Burst: burst}
			out = append(out, resilience.Pace{Scope: account + "/" + s, Limit: limit})
		}
	}
	return out
}

// serves reports whether the account may send for project by provider.
func (a *Account) serves(project, provider string) bool {
	return a.Hidden == store.Hidden(project) && (provider == "" || a.Provider.Info().Provider == provider) &&
		(len(a.Projects) == 0 || slices.Contains(a.Projects, project))
}

// Channel is a channel's accounts, in the order they are tried, and its limit.
type Channel struct {
	// MaxInFlight bounds the calls of this node that are under way at once.
	MaxInFlight int
	Accounts    []*Account
}

// Registry is every configured channel. It is not changed once in use; a new
// configuration is a new registry.
type Registry struct {
	channels   map[notify.Channel]Channel
	infos      []channels.Info
	restricted bool // some account is not for all projects
	ackSample  string
}

// NewRegistry returns a registry of the given channels.
func NewRegistry(byChannel map[notify.Channel]Channel) *Registry {
	r := &Registry{channels: byChannel}
	for _, a := range r.Accounts() {
		if a.Hidden {
			continue
		}
		r.infos = append(r.infos, a.Provider.Info())
		r.restricted = r.restricted || len(a.Projects) > 0
	}
	return r
}

// Infos describes the accounts that a project may use. The slice is shared.
func (r *Registry) Infos(project string) []channels.Info {
	if !r.restricted {
		return r.infos
	}
	var out []channels.Info
	for _, a := range r.Accounts() {
		if a.serves(project, "") {
			out = append(out, a.Provider.Info())
		}
	}
	return out
}

// Channel returns a channel's configuration; its zero value where it has none.
func (r *Registry) Channel(c notify.Channel) Channel { return r.channels[c] }

// Accounts returns all accounts, by channel in the order of [notify.Channels].
func (r *Registry) Accounts() []*Account {
	var out []*Account
	for _, c := range notify.Channels() {
		out = append(out, r.channels[c].Accounts...)
	}
	return out
}

// pick returns the account that a delivery goes through, nil if none may.
func (r *Registry) pick(c notify.Channel, project, pinned, provider string) *Account {
	for _, a := range r.channels[c].Accounts {
		if (pinned == "" || a.Provider.Info().Account == pinned) && a.serves(project, provider) {
			return a
		}
	}
	return nil
}

// Check reports what would keep a notification from being sent, as far as that
// is known before the first call: steps without an account, and what the
// accounts' providers say of the message.
func (r *Registry) Check(n *notify.Notification) []notify.Problem {
	problems := r.checkLinks(n)
	n = r.linked(n)
	for i, step := range n.Chain {
		for j, target := range n.To.Targets(step.Channel) {
			var room [usual]*Account
			accounts := r.candidates(room[:0], step.Channel, n.Project, step.Account, channels.RequiredProvider(target), keyOf(n.ID, int16(i), int16(j)))
			if len(accounts) == 0 {
				problems = append(problems, noAccount(i, step))
				break
			}
			if p := checkAll(accounts, message(n, i, j, 0)); p != nil && !slices.Contains(problems, *p) {
				problems = append(problems, *p)
			}
		}
	}
	return problems
}

// checkAll returns what the first of the accounts says of a message that none of
// them would take; nil where one of them would.
func checkAll(accounts []*Account, m *channels.Message) *notify.Problem {
	var first *notify.Problem
	for _, a := range accounts {
		checker, ok := a.Provider.(channels.Checker)
		if !ok {
			return nil
		}
		p := problemOf(checker.Check(m))
		if p == nil {
			return nil
		}
		if first == nil {
			first = p
		}
	}
	return first
}

// message is what the provider is given for one target of one step.
func message(n *notify.Notification, step, target, round int) *channels.Message {
	return &channels.Message{
		Key:            notify.DeliveryKey(n.ID, step, target, round),
		NotificationID: n.ID,
		To:             n.To.Targets(n.Chain[step].Channel)[target],
		Content:        n.Content,
		Priority:       n.Priority,
		Reference:      n.Reference,
		Metadata:       n.Metadata,
		Trace:          n.Trace,
		CreatedAt:      n.CreatedAt,
		ExpiresAt:      n.ExpiresAt,
	}
}

// policy is what a step asks for, with what the account adds. spread is a random
// number in [0, 1).
func (r *Registry) policy(n *notify.Notification, step int, a *Account, spread float64) fallback.Policy {
	if a == nil {
		a = &Account{}
	}
	p := fallback.NewPolicy(n, step, a.OnUnknown)
	p.Spread = spread
	p.Backoff = func(retry int) time.Duration { return a.delay(a.Retry, retry, spread) }
	p.SlowBackoff = func(retry int) time.Duration { return a.delay(a.SlowRetry, retry, spread) }
	p.Observable = notify.Sent
	p.Window = a.ReceiptWindow
	if a.Provider != nil {
		info := a.Provider.Info()
		p.Observable, p.Reports = info.MaxObservable, info.Receipts
		p.Lookup = a.lookup() != nil
	}
	return p
}

// codeUnsendable marks what a provider says it would not send.
const codeUnsendable = "unsendable"

func noAccount(i int, step notify.Step) notify.Problem {
	p := notify.Problem{
		Pointer: "/chain/" + strconv.Itoa(i) + "/channel", Code: notify.CodeUnknownAccount,
		Detail: "no configured account of this channel can serve this project and address",
	}
	if step.Account != "" {
		p.Pointer = "/chain/" + strconv.Itoa(i) + "/account"
	}
	return p
}

// problemOf turns a provider's complaint into a problem; nil if there is none.
func problemOf(err error) *notify.Problem {
	if err == nil {
		return nil
	}
	p := &notify.Problem{Code: codeUnsendable, Detail: "the provider would not take this message"}
	if check, ok := errors.AsType[*channels.CheckError](err); ok {
		p.Pointer, p.Detail = check.Field, check.Reason
	}
	return p
}
