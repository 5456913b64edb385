package dispatch_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

var both = notify.To{SMS: "+14155550100", Email: &notify.EmailAddress{Address: "ana@example.com"}}

func TestAnAcceptedNotificationIsSent(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	n := single(t, account(sms))
	status, r := n.final(t, n.accept(t, notification(both, step(notify.SMS))))
	if status != notify.Sent || len(r.Attempts) != 1 || r.Attempts[0].ProviderMessageID != "id-1" {
		t.Errorf("status %s, attempts %+v", status, r.Attempts)
	}
	if got := len(sms.sent()); got != 1 {
		t.Errorf("%d calls", got)
	}
}

func TestAFailingChannelIsRetriedAndThenFallsBack(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, always(notify.ProviderUnavailable))
	email := newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	status, r := n.final(t, n.accept(t, notification(both, step(notify.SMS), step(notify.Email))))
	if status != notify.Sent {
		t.Fatalf("status %s", status)
	}
	if len(sms.sent()) != 4 || len(email.sent()) != 1 {
		t.Errorf("%d sms and %d email calls, want 4 and 1", len(sms.sent()), len(email.sent()))
	}
	if why := r.Deliveries[1].StartedWhy; why != "fallback: provider_unavailable" {
		t.Errorf("second step started because %q", why)
	}
	for _, c := range sms.sent() {
		if c.key != sms.sent()[0].key {
			t.Error("the delivery's key changed between attempts")
		}
	}
}

func TestAPermanentFailureMovesOnAtOnce(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, always(notify.RecipientRejected))
	email := newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	status, _ := n.final(t, n.accept(t, notification(both, step(notify.SMS), step(notify.Email))))
	if status != notify.Sent || len(sms.sent()) != 1 || len(email.sent()) != 1 {
		t.Errorf("status %s, %d sms and %d email calls", status, len(sms.sent()), len(email.sent()))
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	const quiet = 700 * time.Millisecond
	sms := newScript(notify.SMS, func(n int, _ *channels.Message) channels.Result {
		if n == 1 {
			return channels.Result{Outcome: notify.Throttled, RetryAfter: quiet}
		}
		return channels.Ok("id-2")
	})
	n := single(t, account(sms))
	_, r := n.final(t, n.accept(t, notification(both, step(notify.SMS))))
	calls := sms.sent()
	if len(calls) != 2 || calls[1].at.Sub(calls[0].at) < quiet {
		t.Errorf("calls %+v", calls)
	}
	if d := r.Deliveries[0]; d.Attempts != 1 || d.Throttles != 1 {
		t.Errorf("attempts %d, throttles %d: a 429 must use up no attempt", d.Attempts, d.Throttles)
	}
}

// pile is a job queue that nobody works.
type pile struct {
	mu        sync.Mutex
	envelopes []store.Envelope
}

func (p *pile) Insert(_ context.Context, _ pgx.Tx, envelopes []store.Envelope) ([]int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]int64, len(envelopes))
	for i, e := range envelopes {
		p.envelopes = append(p.envelopes, e)
		ids[i] = int64(len(p.envelopes))
	}
	return ids, nil
}

// take waits for the n-th envelope.
func (p *pile) take(t *testing.T, n int) (e store.Envelope) {
	t.Helper()
	eventually(t, "there is an envelope", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.envelopes) < n {
			return false
		}
		e = p.envelopes[n-1]
		return true
	})
	return e
}

// A job ends in mid-claim where the queue could not start whole, where somebody
// cancels it in River, and at a hard stop.
func TestAClaimWhoseJobEndsIsGivenBackAtOnce(t *testing.T) {
	t.Parallel()
	for _, channel := range []notify.Channel{notify.SMS, notify.Email} {
		t.Run(string(channel), func(t *testing.T) {
			t.Parallel()
			s, jobs := newScript(channel, ok), &pile{}
			job, end := context.WithCancel(t.Context())
			n := start(t, pgURL(t), registry(account(s)), func(c *setup) {
				c.SweepEvery = time.Hour
				c.prepare = func(d *dispatch.Dispatcher, s *store.Store) {
					s.SetQueue(jobs)
					d.LoseAnswers(func(what string) bool {
						if what == "claim" {
							end()
						}
						return false
					})
				}
			})
			id := n.accept(t, notification(both, step(channel)))
			envelope := jobs.take(t, 1)
			eventually(t, "the node may call, and claims", func() bool {
				n.RunJob(job, envelope)
				return job.Err() != nil
			})
			if calls := len(s.sent()); calls != 0 {
				t.Fatalf("%d calls", calls)
			}
			n.RunJob(t.Context(), jobs.take(t, 2))
			if status, r := n.final(t, id); status != notify.Sent || len(r.Attempts) != 1 || r.Attempts[0].PossibleDuplicate {
				t.Errorf("status %s, attempts %+v", status, r.Attempts)
			}
		})
	}
}
