package httpapi

import (
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// notificationView is a notification as it is shown: without address and content.
type notificationView struct {
	ID             uuid.UUID       `json:"id" format:"uuid"`
	Status         notify.Status   `json:"status" enum:"queued,sending,sent,delivered,read,failed,partially_failed,expired,canceled,suppressed" doc:"How far the whole has come. sent is final at once where no receipt can come."`
	Reference      string          `json:"reference,omitzero" doc:"The caller's own name for it."`
	Priority       notify.Priority `json:"priority" enum:"critical,high,normal,low"`
	Mode           notify.Mode     `json:"mode" enum:"first,all"`
	CreatedAt      time.Time       `json:"created_at"`
	SendAt         time.Time       `json:"send_at"`
	ExpiresAt      time.Time       `json:"expires_at"`
	FinishedAt     *time.Time      `json:"finished_at" doc:"When nothing more was to come; null before."`
	CanceledAt     *time.Time      `json:"canceled_at" doc:"When it was canceled; null for never."`
	RetriedAt      *time.Time      `json:"retried_at,omitempty" doc:"When it was last started again; absent for never."`
	Round          int             `json:"round,omitzero" doc:"How many times it was started again."`
	AcknowledgedAt *time.Time      `json:"acknowledged_at" doc:"When the application said that the person has seen it; null for never."`
	Waiting        *waitingView    `json:"waiting,omitempty" doc:"Why it is not moving now; the wait that ends first."`
	Metadata       objectJSON      `json:"metadata,omitzero" doc:"As it was sent."`
	Steps          []stepStatus    `json:"steps" doc:"The chain, in order."`
	Timeline       []timelineEntry `json:"timeline,omitempty" doc:"The whole story in order: why each step started, each call, receipt and wait, and what they led to. Not in lists."`
}

type waitingView struct {
	Reason notify.WaitReason `json:"reason" enum:"scheduled,backoff,throttled,breaker_open,paused,capacity,budget,account_rejected,receipt,reconcile,quiet_hours"`
	Until  time.Time         `json:"until" doc:"When it moves again at the earliest."`
}

type stepStatus struct {
	Channel        notify.Channel       `json:"channel" enum:"push,sms,whatsapp,email,slack,webhook"`
	Account        string               `json:"account,omitzero" doc:"The account that the request pinned the step to."`
	Success        notify.Criterion     `json:"success" enum:"accepted,delivered,read,acknowledged"`
	Within         notify.Duration      `json:"within,omitzero" example:"2m0s"`
	Attempts       int                  `json:"max_attempts" doc:"Calls that each target gets at most."`
	OnUnknown      notify.UnknownPolicy `json:"on_unknown,omitzero" enum:"reconcile,resend,fallback,assume_sent"`
	MaxObservable  notify.Status        `json:"max_observable,omitzero" enum:"sent,delivered,read" doc:"The best that can ever be known of this step, by the account that was used or would be."`
	Status         notify.Status        `json:"status" enum:"pending,waiting,queued,sending,unknown,sent,failed,delivered,read,expired,canceled,suppressed" doc:"The best of its targets."`
	Because        string               `json:"because,omitzero" doc:"Why it ended without success."`
	StartedBecause string               `json:"started_because,omitzero" example:"fallback: recipient_rejected"`
	Targets        int                  `json:"targets,omitzero" doc:"How many addresses it is sent to; absent until it starts."`
	Waiting        *waitingView         `json:"waiting,omitempty"`
	Calls          []attemptView        `json:"attempts,omitempty" doc:"Every call, by target and time."`
	Receipts       []receiptView        `json:"receipts,omitempty" doc:"What providers said later, in the order in which it came. Not in lists."`
}

type attemptView struct {
	Account           string         `json:"account"`
	Target            int            `json:"target,omitzero" doc:"Which address, counted from 0, where a step has several."`
	N                 int            `json:"n" doc:"Counts the calls to one target from 1."`
	StartedAt         time.Time      `json:"started_at"`
	DurationMS        float64        `json:"duration_ms" doc:"Milliseconds."`
	Outcome           notify.Outcome `json:"outcome" enum:"accepted,unknown,throttled,provider_unavailable,recipient_unavailable,recipient_rejected,message_rejected,account_rejected,suppressed,not_attempted,expired"`
	HTTPStatus        int            `json:"http_status,omitzero"`
	RetryAfterMS      int64          `json:"retry_after_ms,omitzero" doc:"How long the provider asked to be left alone, in milliseconds."`
	ProviderCode      string         `json:"provider_code,omitzero"`
	ProviderMessageID string         `json:"provider_message_id,omitzero"`
	Detail            string         `json:"detail,omitzero"`
	PossibleDuplicate bool           `json:"possible_duplicate,omitzero" doc:"An earlier call may have been accepted too."`
}

// objectJSON is a JSON object as the caller wrote it.
type objectJSON jsontext.Value

// MarshalJSON implements json.Marshaler.
func (o objectJSON) MarshalJSON() ([]byte, error) { return jsontext.Value(o).MarshalJSON() }

// Schema implements huma.SchemaProvider.
func (objectJSON) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// bestOf returns the best status that an account, or with no name the first of
// the channel's, can show.
type bestOf func(c notify.Channel, account string) (notify.Status, bool)

func view(r *store.Record, best bestOf) notificationView {
	n := &r.Notification
	status, _ := r.Overall()
	v := notificationView{
		ID: n.ID, Status: status, Reference: n.Reference, Priority: n.Priority, Mode: n.Mode,
		CreatedAt: n.CreatedAt.UTC(), SendAt: n.SendAt.UTC(), ExpiresAt: n.ExpiresAt.UTC(),
		FinishedAt: utc(r.FinishedAt()), CanceledAt: utc(r.CanceledAt), AcknowledgedAt: utc(r.AcknowledgedAt),
		RetriedAt: utc(r.RetriedAt), Round: n.Round, Waiting: waiting(r.Waits), Metadata: objectJSON(n.Metadata), Steps: make([]stepStatus, len(n.Chain)),
	}
	byStep := r.ByStep()
	for i, s := range n.Chain {
		v.Steps[i] = stepOf(r, i, notify.StepStatus(byStep[i]))
		account := v.Steps[i].Account
		if used := lastAccount(r, i); used != "" {
			account = used
		}
		v.Steps[i].MaxObservable, _ = best(s.Channel, account)
	}
	return v
}

func stepOf(r *store.Record, i int, status notify.Status) stepStatus {
	s := r.Notification.Chain[i]
	v := stepStatus{
		Channel: s.Channel, Account: s.Account, Success: s.Success, Within: s.Within, Attempts: s.Attempts, OnUnknown: s.OnUnknown,
		Status: status,
	}
	for _, d := range r.Deliveries {
		if int(d.Step) != i || r.Past(&d) {
			continue
		}
		v.Targets, v.StartedBecause = int(d.Targets), d.StartedWhy
		if v.Because == "" && d.Final && d.Status == status && ended(status) {
			v.Because = d.Because
		}
	}
	var waits []store.Wait
	for _, w := range r.Waits {
		if int(w.Step) == i {
			waits = append(waits, w)
		}
	}
	v.Waiting = waiting(waits)
	for _, a := range r.Attempts {
		if int(a.Step) == i {
			v.Calls = append(v.Calls, attempt(a))
		}
	}
	for _, c := range r.Receipts {
		if int(c.Step) == i {
			v.Receipts = append(v.Receipts, viewReceipt(c))
		}
	}
	return v
}

// ended reports whether a step with this status ended without success.
func ended(s notify.Status) bool {
	return s == notify.Failed || s == notify.Lapsed || s == notify.Canceled || s == notify.Blocked
}

func attempt(a store.Attempt) attemptView {
	return attemptView{
		Account: a.Account, Target: int(a.Target), N: int(a.N), StartedAt: a.StartedAt.UTC(),
		DurationMS: float64(a.Duration.Microseconds()) / 1000, Outcome: a.Outcome, HTTPStatus: a.HTTPStatus,
		RetryAfterMS: a.RetryAfter.Milliseconds(), ProviderCode: a.ProviderCode, ProviderMessageID: a.ProviderMessageID,
		Detail: a.Detail, PossibleDuplicate: a.PossibleDuplicate,
	}
}

// waiting returns the wait that ends first, nil for none.
func waiting(waits []store.Wait) *waitingView {
	var v *waitingView
	for _, w := range waits {
		if v == nil || w.Due.Before(v.Until) {
			v = &waitingView{Reason: w.Reason, Until: w.Due.UTC()}
		}
	}
	return v
}

// lastAccount is the account of step i that a delivery was last claimed for.
func lastAccount(r *store.Record, i int) string {
	account := ""
	for _, d := range r.Deliveries {
		if int(d.Step) == i && d.Account != "" {
			account = d.Account
		}
	}
	return account
}

func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
