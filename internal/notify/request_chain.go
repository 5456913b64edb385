package notify

import (
	"fmt"
	"time"
)

// Defaults of a step, which [Parse] fills in.
const (
	stepAttempts   = 4
	stepWithin     = 2 * time.Minute  // where a next step follows
	criticalWithin = 30 * time.Second // the same, for priority critical
)

// stepRequest is one step of a chain, which has 1 to [MaxSteps] of them:
//   - channel is one of the channels, and `to` has an address for it;
//   - account names an account of that channel;
//   - success is accepted (default), delivered, read or acknowledged. One that no
//     account which the step may go through can ever observe is refused, and accounts
//     that cannot are passed over; acknowledged comes from the application and is
//     always possible;
//   - within is a duration from [MinWithin] to [MaxWithin], see [Duration];
//     where a next step follows from this one, the default is 2 min, and 30 s if
//     the priority is critical;
//   - attempts is 1 to [MaxAttempts], default 4;
//   - on_unknown is reconcile, resend, fallback or assume_sent; the default is
//     the account's.
//
// Without a chain the steps are push, sms, whatsapp and email, in that order,
// those that `to` has an address for; slack and webhook are used only when a
// chain names them.
type stepRequest struct {
	Channel   string `json:"channel"`
	Account   string `json:"account"`
	Success   string `json:"success"`
	Within    string `json:"within"`
	Attempts  *int   `json:"attempts"`
	OnUnknown string `json:"on_unknown"`
}

const durationDetail = `must be a duration such as "90s" or "2m30s"`

func (v *validator) chain(r *request, mode Mode, p Priority) []Step {
	if r.Chain == nil {
		return v.defaultChain(r.To, mode, p)
	}
	if len(r.Chain) == 0 || len(r.Chain) > MaxSteps {
		v.add("/chain", CodeLength, "must have 1 to 10 steps")
		return nil
	}
	chain := make([]Step, len(r.Chain))
	for i := range r.Chain {
		last := mode == All || i == len(r.Chain)-1
		chain[i] = v.step(&r.Chain[i], at("/chain", i), p, last)
	}
	v.addressed(r.To, chain)
	return chain
}

func (v *validator) defaultChain(to *toRequest, mode Mode, p Priority) []Step {
	var chain []Step
	for _, c := range []Channel{Push, SMS, WhatsApp, Email} {
		if to.names(c) {
			chain = append(chain, Step{Channel: c, Success: UntilAccepted, Attempts: stepAttempts})
			v.account(Step{Channel: c}, at("/to", string(c)), "")
		}
	}
	for i := range chain {
		if mode == First && i < len(chain)-1 {
			chain[i].Within = defaultWithin(p)
		}
	}
	if chain == nil && (to.names(Slack) || to.names(Webhook)) {
		v.add("/chain", CodeRequired, "must name the steps; without it only push, sms, whatsapp and email are used")
	}
	return chain
}

func defaultWithin(p Priority) Duration {
	if p == Critical {
		return Duration(criticalWithin)
	}
	return Duration(stepWithin)
}

func (v *validator) step(r *stepRequest, pointer string, p Priority, last bool) Step {
	s := Step{
		Channel: Channel(r.Channel), Account: r.Account, Success: Criterion(r.Success),
		Attempts: stepAttempts, OnUnknown: UnknownPolicy(r.OnUnknown),
	}
	if s.Success == "" {
		s.Success = UntilAccepted
	}
	known := s.Success.Valid()
	v.check(known, at(pointer, "success"), CodeChoice, "must be one of accepted, delivered, read, acknowledged")
	if !s.Channel.Valid() {
		v.add(at(pointer, "channel"), CodeChoice, "must be one of push, sms, whatsapp, email, slack, webhook")
	} else if best, ok := v.account(s, at(pointer, "channel"), at(pointer, "account")); ok && known {
		v.observable(s, best, at(pointer, "success"))
	}
	s.Within = v.within(r.Within, at(pointer, "within"))
	if s.Within == 0 && !last {
		s.Within = defaultWithin(p)
	}
	if r.Attempts != nil {
		s.Attempts = *r.Attempts
		v.check(s.Attempts >= 1 && s.Attempts <= MaxAttempts, at(pointer, "attempts"), CodeRange, "must be 1 to 20")
	}
	v.check(s.OnUnknown == "" || s.OnUnknown.Valid(), at(pointer, "on_unknown"), CodeChoice,
		"must be one of reconcile, resend, fallback, assume_sent")
	return s
}

// account looks the step's account up and returns the best status it can show.
func (v *validator) account(s Step, channelPointer, accountPointer string) (Status, bool) {
	if v.o.Account == nil {
		return Read, true
	}
	best, ok := v.o.Account(s.Channel, s.Account)
	switch {
	case ok:
	case s.Account == "":
		v.add(channelPointer, CodeUnknownAccount, "no account is configured for this channel")
	default:
		v.add(accountPointer, CodeUnknownAccount, "must be a configured account of this channel")
	}
	return best, ok
}

// observable refuses a criterion that nobody could ever say is met. best is the
// most that any account which the step may go through can tell.
func (v *validator) observable(s Step, best Status, pointer string) {
	if s.Success.Observable(best) {
		return
	}
	where := string(s.Channel)
	if s.Account != "" {
		where += " through " + s.Account
	}
	v.add(pointer, CodeUnobservable, fmt.Sprintf(
		"on %s nobody can tell that a message was %s; the most that is ever known of it is %s", where, s.Success.Needs(), best))
}

func (v *validator) within(s, pointer string) Duration {
	if s == "" {
		return 0
	}
	d, ok := parseDuration(s)
	if !ok {
		v.add(pointer, CodeFormat, durationDetail)
		return 0
	}
	v.check(d.Std() >= MinWithin && d.Std() <= MaxWithin, pointer, CodeRange, "must be 1s to 168h")
	return d
}

// addressed checks that every step has somewhere to send to.
func (v *validator) addressed(to *toRequest, chain []Step) {
	if to == nil {
		return
	}
	missing := map[Channel]bool{}
	for _, s := range chain {
		if s.Channel.Valid() && !to.names(s.Channel) && !missing[s.Channel] {
			missing[s.Channel] = true
			v.add(at("/to", string(s.Channel)), CodeRequired, "must be there, because the chain has a step for it")
		}
	}
}
