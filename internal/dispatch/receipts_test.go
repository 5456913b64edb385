package dispatch_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// reported is a script whose messages' statuses are told later.
type reported struct {
	*script
	mu       sync.Mutex
	messages []channels.Message
}

// newReported answers as told; what is accepted has the attempt's id for its own.
func newReported(c notify.Channel, answer func(n int, m *channels.Message) notify.Outcome) *reported {
	r := &reported{}
	r.script = newScript(c, func(n int, m *channels.Message) channels.Result {
		r.mu.Lock()
		r.messages = append(r.messages, *m)
		r.mu.Unlock()
		result := channels.Result{Outcome: answer(n, m)}
		if result.Outcome == notify.Accepted {
			result.MessageID = messageID(m.Ref)
		}
		return result
	})
	r.info.MaxObservable = notify.Read
	return r
}

func accepts(int, *channels.Message) notify.Outcome { return notify.Accepted }

func messageID(ref channels.Ref) string { return "SM" + ref.Attempt.String() }

// refs waits for so many calls and returns what they are named by.
func (r *reported) refs(t *testing.T, calls int) []channels.Ref {
	t.Helper()
	var out []channels.Ref
	eventually(t, "the calls", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		out = nil
		for i := range r.messages {
			out = append(out, r.messages[i].Ref)
		}
		return len(out) >= calls
	})
	return out
}

// receipt is what the provider of a call tells later.
func receipt(account string, ref channels.Ref, status notify.Status) store.Receipt {
	r := store.Receipt{
		DeliveryID: store.DeliveryID{Notification: ref.Notification, Step: int16(ref.Step), Target: int16(ref.Target)}, Attempt: ref.Attempt,
		Account: account, MessageID: messageID(ref), Status: status, ReceivedAt: time.Now(),
	}
	if status == notify.Failed {
		r.Outcome, r.Code = notify.RecipientUnavailable, "30003"
	}
	return r
}

// told takes receipts in, as the route of callbacks does.
func (n *node) hears(t *testing.T, receipts ...store.Receipt) {
	t.Helper()
	if _, err := n.store.AddReceipts(t.Context(), receipts); err != nil {
		t.Fatal(err)
	}
}

// applied waits until all receipts are.
func (n *node) applied(t *testing.T) {
	t.Helper()
	eventually(t, "all receipts are applied", func() bool {
		n.exec(t, "update dispatcher.receipts set look_at = now() where applied_at is null and look_at > now()")
		return n.count(t, "select count(*) from dispatcher.receipts where applied_at is null") == 0
	})
}

const smsMain = "sms-main"

func until(c notify.Channel, success notify.Criterion) notify.Step {
	return notify.Step{Channel: c, Success: success, Within: notify.Duration(time.Minute)}
}

func TestACallCarriesItsNameAndWhereToReport(t *testing.T) {
	t.Parallel()
	sms := newReported(notify.SMS, accepts)
	n := start(t, pgURL(t), registry(account(sms)), func(s *setup) { s.PublicURL = "https://hooks.example.com/d/" })
	id := n.accept(t, notification(both, step(notify.SMS)))
	ref := sms.refs(t, 1)[0]
	a := n.waiting(t, id, notify.WaitReceipt).Attempts[0]
	if want := (channels.Ref{Notification: id, Attempt: a.ID}); ref != want {
		t.Errorf("named %+v, want %+v", ref, want)
	}
	if got, want := sms.messages[0].Callback, "https://hooks.example.com/d/v1/receipts/sms-main/status/"+ref.String(); got != want {
		t.Errorf("reports go to %s, want %s", got, want)
	}
	if sms := newReported(notify.SMS, accepts); true {
		n := single(t, account(sms))
		n.accept(t, notification(both, step(notify.SMS)))
		if sms.refs(t, 1); sms.messages[0].Callback != "" {
			t.Errorf("without a public address reports go to %s", sms.messages[0].Callback)
		}
	}
}

func TestAMessageThatIsNotDeliveredFallsBack(t *testing.T) {
	t.Parallel()
	for name, success := range map[string]notify.Criterion{"although accepted was enough": notify.UntilAccepted, "that had to be": notify.UntilDelivered} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sms, email := newReported(notify.SMS, accepts), newScript(notify.Email, ok)
			n := single(t, account(sms), account(email))
			id := n.accept(t, notification(both, until(notify.SMS, success), step(notify.Email)))
			ref := sms.refs(t, 1)[0]
			n.waiting(t, id, notify.WaitReceipt)
			n.hears(t, receipt(smsMain, ref, notify.Sent), receipt(smsMain, ref, notify.Failed))
			status, r := n.final(t, id)
			d := r.Deliveries
			if status != notify.Sent || d[0].Status != notify.Failed || d[0].Because != "undelivered: recipient_unavailable" ||
				d[1].StartedWhy != "fallback: undelivered: recipient_unavailable" || len(sms.sent()) != 1 || len(email.sent()) != 1 {
				t.Errorf("status %s, %+v, %d sms, %d emails", status, d, len(sms.sent()), len(email.sent()))
			}
			if got, want := story(n.events(t, id)), "accepted sent failed:undelivered: recipient_unavailable sent."; got != want && success == notify.UntilAccepted {
				t.Errorf("events %s, want %s", got, want)
			}
			n.applied(t)
			if got := n.history(t, id).Receipts; len(got) != 2 {
				t.Errorf("receipts %+v", got)
			}
		})
	}
}

func (n *node) history(t *testing.T, id uuid.UUID) store.Record {
	t.Helper()
	r, err := n.store.Get(t.Context(), "default", id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestADeliveryThatIsReportedBeforeTheAnswerStays(t *testing.T) {
	t.Parallel()
	for _, answer := range []notify.Outcome{notify.Accepted, notify.Unknown, notify.ProviderUnavailable, notify.RecipientRejected} {
		t.Run("the answer is "+string(answer), func(t *testing.T) {
			t.Parallel()
			shut := newDoor(t)
			sms := newReported(notify.SMS, func(int, *channels.Message) notify.Outcome { <-shut.c; return answer })
			sms.info.MaxObservable = notify.Delivered
			email := newScript(notify.Email, ok)
			n := single(t, account(sms), account(email))
			id := n.accept(t, notification(both, until(notify.SMS, notify.UntilDelivered), step(notify.Email)))
			n.hears(t, receipt(smsMain, sms.refs(t, 1)[0], notify.Delivered))
			status, r := n.final(t, id)
			if a := r.Attempts; status != notify.Delivered || len(a) != 1 || a[0].Outcome != notify.Unknown {
				t.Errorf("before the answer: status %s, attempts %+v", status, a)
			}
			shut.open()
			n.until(t, id, "answered", func(r record) bool { return answer == notify.Unknown || r.Attempts[0].Outcome == answer })
			eventually(t, "the job is done", func() bool {
				return n.count(t, "select count(*) from dispatcher.river_job where state <> 'completed'") == 0
			})
			status, r = n.final(t, id)
			if status != notify.Delivered || len(r.Attempts) != 1 || len(sms.sent()) != 1 || len(email.sent()) != 0 || r.Deliveries[0].Attempts != 1 {
				t.Errorf("after it: status %s, %+v, %d sms, %d emails", status, r, len(sms.sent()), len(email.sent()))
			}
			if got, want := story(n.events(t, id)), "accepted delivered."; got != want {
				t.Errorf("events %s, want %s", got, want)
			}
		})
	}
}

func TestAFailureThatIsReportedBeforeTheAnswerIsNotUndoneByIt(t *testing.T) {
	t.Parallel()
	shut := newDoor(t)
	sms := newReported(notify.SMS, func(int, *channels.Message) notify.Outcome { <-shut.c; return notify.Accepted })
	email := newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
	n.hears(t, receipt(smsMain, sms.refs(t, 1)[0], notify.Failed))
	if status, _ := n.final(t, id); status != notify.Sent || len(email.sent()) != 1 {
		t.Errorf("status %s, %d emails", status, len(email.sent()))
	}
	shut.open()
	r := n.until(t, id, "answered", func(r record) bool { return r.Attempts[0].Outcome == notify.Accepted })
	eventually(t, "the job is done", func() bool {
		return n.count(t, "select count(*) from dispatcher.river_job where state <> 'completed'") == 0
	})
	if d := n.history(t, id).Deliveries[0]; d.Status != notify.Failed || len(r.Attempts) != 2 || len(sms.sent()) != 1 {
		t.Errorf("%+v after %d calls", d, len(sms.sent()))
	}
}

func TestAReceiptOfAMessageThatNobodyKnowsYetIsApplied(t *testing.T) {
	t.Parallel()
	sms := newReported(notify.SMS, accepts)
	n := start(t, pgURL(t), registry(account(sms)), func(s *setup) { s.Hold = true })
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.hears(t, store.Receipt{Account: smsMain, MessageID: "SM-other", Status: notify.Delivered, ReceivedAt: time.Now()})
	sms.script.answer = func(int, *channels.Message) channels.Result { return channels.Ok("SM-late") }
	n.hears(t, store.Receipt{Account: smsMain, MessageID: "SM-late", Status: notify.Read, ReceivedAt: time.Now()})
	eventually(t, "both were looked at", func() bool {
		return n.count(t, "select count(*) from dispatcher.receipts where look_at > received_at and notification_id is null") == 2
	})
	n.Release()
	status, _ := n.final(t, id)
	if status != notify.Read || n.count(t, "select count(*) from dispatcher.receipts where notification_id is null") != 1 {
		t.Errorf("status %s", status)
	}
	r := n.history(t, id)
	if got := r.Receipts; len(got) != 1 || got[0].Attempt != r.Attempts[0].ID || got[0].AppliedAt.IsZero() {
		t.Errorf("receipts %+v", got)
	}
}

func TestReceiptsThatNobodyAppliedAreAppliedByAnotherNode(t *testing.T) {
	t.Parallel()
	sms := newReported(notify.SMS, accepts)
	url, r := pgURL(t), registry(account(sms))
	first := start(t, url, r)
	id := first.accept(t, notification(both, step(notify.SMS)))
	first.waiting(t, id, notify.WaitReceipt)
	first.stop()
	api := start(t, url, r, func(s *setup) { s.Work = false })
	api.hears(t, receipt(smsMain, sms.refs(t, 1)[0], notify.Read))
	// Somebody takes it and dies.
	if due, err := api.store.TakeReceipts(t.Context(), 10); err != nil || len(due.Receipts) != 1 {
		t.Fatalf("took %+v, %v", due, err)
	}
	if due, err := api.store.TakeReceipts(t.Context(), 10); err != nil || len(due.Receipts) != 0 {
		t.Fatalf("took %+v, which another has, %v", due, err)
	}
	api.exec(t, "update dispatcher.receipts set look_at = now()")
	second := start(t, url, r)
	if status, _ := second.final(t, id); status != notify.Read {
		t.Errorf("status %s", status)
	}
}

func TestALateDeliveryStopsWhatHasNotBeenSent(t *testing.T) {
	t.Parallel()
	sms, email := newReported(notify.SMS, accepts), newScript(notify.Email, throttledFor(time.Hour))
	n := single(t, account(sms), account(email))
	id := n.accept(t, notification(both, until(notify.SMS, notify.UntilDelivered), step(notify.Email)))
	ref := sms.refs(t, 1)[0]
	n.waiting(t, id, notify.WaitReceipt)
	n.pass(t)
	n.waiting(t, id, notify.WaitThrottled)
	n.hears(t, receipt(smsMain, ref, notify.Delivered))
	status, r := n.final(t, id)
	if d := r.Deliveries; status != notify.Delivered || d[0].Status != notify.Delivered || d[1].Status != notify.Canceled || d[1].Because != "superseded" ||
		len(r.Waits) != 0 {
		t.Errorf("status %s, %+v, waits %+v", status, d, r.Waits)
	}
	want := "accepted sent:delivered waiting:throttled corrected:delivered canceled:superseded finished:delivered."
	if got := story(n.events(t, id)); got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

func TestALateDeliveryLetsACallUnderWayFinishAndShowsIt(t *testing.T) {
	t.Parallel()
	for _, answer := range []notify.Outcome{notify.Accepted, notify.ProviderUnavailable, notify.RecipientRejected} {
		t.Run(string(answer), func(t *testing.T) {
			t.Parallel()
			shut := newDoor(t)
			sms, email := newReported(notify.SMS, accepts), newScript(notify.Email, shut.then(answer))
			push := pushScript(func(string) channels.Result { return channels.Ok("id") })
			n := single(t, account(sms), account(email), account(push))
			to := devices()
			to.SMS = both.SMS
			to.Push = to.Push[:1]
			id := n.accept(t, notification(to, until(notify.SMS, notify.UntilDelivered), step(notify.Email), step(notify.Push)))
			ref := sms.refs(t, 1)[0]
			n.waiting(t, id, notify.WaitReceipt)
			n.pass(t)
			eventually(t, "the email is under way", func() bool { return len(email.sent()) == 1 })
			n.hears(t, receipt(smsMain, ref, notify.Delivered))
			n.until(t, id, "corrected", func(r record) bool { return r.Deliveries[0].Status == notify.Delivered })
			shut.open()
			status, r := n.final(t, id)
			want := notify.Canceled
			if answer == notify.Accepted {
				want = notify.Sent
			}
			if d := r.Deliveries; status != notify.Delivered || len(d) != 2 || d[1].Status != want || d[1].Because != "superseded" || len(push.sent()) != 0 {
				t.Errorf("status %s, %+v", status, d)
			}
			n.endsOnce(t, id, "finished:delivered.")
		})
	}
}

func TestAReceiptAfterTheEndCorrectsUpwardsOnly(t *testing.T) {
	t.Parallel()
	sms, email := newReported(notify.SMS, accepts), newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
	ref := sms.refs(t, 1)[0]
	n.waiting(t, id, notify.WaitReceipt)
	n.pass(t) // the receipt window
	n.final(t, id)
	for _, c := range []struct{ told, want notify.Status }{
		{notify.Sent, notify.Sent},
		{notify.Failed, notify.Failed},
		{notify.Delivered, notify.Delivered},
		{notify.Failed, notify.Delivered},
		{notify.Read, notify.Read},
		{notify.Delivered, notify.Read},
	} {
		r := receipt(smsMain, ref, c.told)
		r.Code = uuid.NewString() // so that it is not one that was told before
		n.hears(t, r)
		n.applied(t)
		if status, r := n.final(t, id); status != c.want || len(r.Deliveries) != 1 || len(email.sent()) != 0 {
			t.Errorf("after %s: status %s, deliveries %+v", c.told, status, r.Deliveries)
		}
	}
	if got, want := story(n.events(t, id)), "accepted sent finished:sent. corrected:failed corrected:delivered corrected:read"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

func TestAFailedReceiptStartsNothingAfterAStopOrTheEndOfTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(*testing.T, *node, uuid.UUID)
		want   notify.Status // of the delivery
	}{
		"canceled": {func(t *testing.T, n *node, id uuid.UUID) { t.Helper(); n.cancel(t, id) }, notify.Failed},
		"acknowledged": {func(t *testing.T, n *node, id uuid.UUID) {
			t.Helper()
			if _, err := n.store.Acknowledge(t.Context(), "default", id, time.Now()); err != nil {
				t.Fatal(err)
			}
		}, notify.Failed},
		"expired": {func(t *testing.T, n *node, id uuid.UUID) {
			t.Helper()
			n.exec(t, "update dispatcher.deliveries set ends_at = now(), expires_at = now() where notification_id = $1", id)
		}, notify.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sms, email := newReported(notify.SMS, accepts), newScript(notify.Email, ok)
			n := single(t, account(sms), account(email))
			id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
			ref := sms.refs(t, 1)[0]
			n.waiting(t, id, notify.WaitReceipt)
			c.before(t, n, id)
			n.hears(t, receipt(smsMain, ref, notify.Failed))
			n.applied(t)
			if _, r := n.final(t, id); r.Deliveries[0].Status != c.want || len(r.Deliveries) != 1 || len(email.sent()) != 0 {
				t.Errorf("deliveries %+v, %d emails", r.Deliveries, len(email.sent()))
			}
		})
	}
}

func TestAFailedReceiptOfACallBeforeOneThatWasAcceptedFailsNothing(t *testing.T) {
	t.Parallel()
	sms := newReported(notify.SMS, func(n int, _ *channels.Message) notify.Outcome {
		if n == 1 {
			return notify.Unknown
		}
		return notify.Accepted
	})
	email := newScript(notify.Email, ok)
	a := account(sms)
	a.OnUnknown = notify.Resend
	n := single(t, a, account(email))
	id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
	refs := sms.refs(t, 2)
	n.waiting(t, id, notify.WaitReceipt)
	n.hears(t, receipt(smsMain, refs[0], notify.Failed))
	n.applied(t)
	if d := n.history(t, id).Deliveries; len(d) != 1 || d[0].Status != notify.Sent {
		t.Fatalf("deliveries %+v", d)
	}
	n.hears(t, receipt(smsMain, refs[1], notify.Failed))
	if status, r := n.final(t, id); status != notify.Sent || r.Deliveries[0].Status != notify.Failed || len(email.sent()) != 1 || len(sms.sent()) != 2 {
		t.Errorf("status %s, deliveries %+v", status, r.Deliveries)
	}
}

func TestAReceiptCallsOffTheRepeat(t *testing.T) {
	t.Parallel()
	sms := newReported(notify.SMS, func(int, *channels.Message) notify.Outcome { return notify.Unknown })
	n := single(t, account(sms))
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.waiting(t, id, notify.WaitReconcile)
	n.hears(t, receipt(smsMain, sms.refs(t, 1)[0], notify.Sent))
	w := n.waiting(t, id, notify.WaitReceipt)
	if w.Deliveries[0].Status != notify.Sent || w.Deliveries[0].Attempts != 1 || len(sms.sent()) != 1 {
		t.Errorf("%+v after %d calls", w.Deliveries[0], len(sms.sent()))
	}
}

func TestAReceiptOfAnEarlierRoundIsShownOnly(t *testing.T) {
	t.Parallel()
	sms := newReported(notify.SMS, func(n int, _ *channels.Message) notify.Outcome {
		if n > 1 {
			return notify.Unknown
		}
		return notify.Accepted
	})
	n := single(t, account(sms))
	id := n.accept(t, notification(both, step(notify.SMS)))
	ref := sms.refs(t, 1)[0]
	n.waiting(t, id, notify.WaitReceipt)
	n.hears(t, receipt(smsMain, ref, notify.Failed))
	if status, _ := n.final(t, id); status != notify.Failed {
		t.Fatalf("status %s", status)
	}
	if retry, err := n.Retry(t.Context(), "default", id, time.Time{}); err != nil || retry.Result != store.Retried {
		t.Fatalf("retry %+v, %v", retry, err)
	}
	again := sms.refs(t, 2)[1]
	n.waiting(t, id, notify.WaitReceipt)
	n.hears(t, receipt(smsMain, ref, notify.Delivered))
	n.applied(t)
	if r := n.history(t, id); r.Deliveries[0].Status != notify.Sent || len(r.Receipts) != 2 {
		t.Errorf("delivery %+v, receipts %+v", r.Deliveries[0], r.Receipts)
	}
	n.hears(t, receipt(smsMain, again, notify.Read))
	if status, _ := n.final(t, id); status != notify.Read {
		t.Errorf("status %s", status)
	}
}

func TestAFailedReceiptCanSuppressTheAddress(t *testing.T) {
	t.Parallel()
	sms := newReported(notify.SMS, accepts)
	n := single(t, account(sms))
	id := n.accept(t, notification(both, step(notify.SMS)))
	r := receipt(smsMain, sms.refs(t, 1)[0], notify.Failed)
	r.Outcome, r.Suppress = notify.RecipientRejected, true
	n.hears(t, r)
	n.final(t, id)
	if status, _ := n.final(t, n.accept(t, notification(both, step(notify.SMS)))); status != notify.Blocked || len(sms.sent()) != 1 {
		t.Errorf("status %s after %d calls", status, len(sms.sent()))
	}
}

func TestAnEndThatCouldNotReachTheAddressIsAStrike(t *testing.T) {
	t.Parallel()
	sms, email := newReported(notify.SMS, accepts), newScript(notify.Email, always(notify.RecipientUnavailable))
	n := single(t, account(sms), account(email))
	strikes := func(c notify.Channel) int {
		t.Helper()
		return n.count(t, "select coalesce(sum(strikes), 0) from dispatcher.address_strikes where channel = '"+string(c)+"'")
	}
	once := step(notify.Email)
	once.Attempts = 1
	n.final(t, n.accept(t, notification(both, once)))
	if got := strikes(notify.Email); got != 1 {
		t.Errorf("%d strikes after a call, want 1", got)
	}
	id := n.accept(t, notification(both, step(notify.SMS)))
	r := receipt(smsMain, sms.refs(t, 1)[0], notify.Failed)
	r.Outcome = notify.RecipientUnavailable
	n.hears(t, r)
	n.until(t, id, "the receipt", func(r store.Record) bool { return r.Deliveries[0].Status == notify.Failed })
	if got := strikes(notify.SMS); got != 1 {
		t.Errorf("%d strikes after a failed receipt, want 1", got)
	}
	id = n.accept(t, notification(both, step(notify.SMS)))
	r = receipt(smsMain, sms.refs(t, 2)[1], notify.Failed)
	r.Outcome = notify.MessageRejected
	n.hears(t, r)
	n.until(t, id, "the other receipt", func(r store.Record) bool { return r.Deliveries[0].Status == notify.Failed })
	if got := strikes(notify.SMS); got != 1 {
		t.Errorf("%d strikes after a receipt that blames the message, want 1", got)
	}
}

func TestABounceOfAnEmailFallsBackWithinItsWindow(t *testing.T) {
	t.Parallel()
	email, sms := newReported(notify.Email, accepts), newScript(notify.SMS, ok)
	email.info.MaxObservable, email.info.Receipts = notify.Sent, true
	a := account(email)
	a.ReceiptWindow = time.Hour
	n := single(t, a, account(sms))
	id := n.accept(t, notification(both, step(notify.Email), step(notify.SMS)))
	w := n.waiting(t, id, notify.WaitReceipt).Waits[0]
	if ahead := w.Due.Sub(w.Since); ahead != time.Hour {
		t.Errorf("waits for %v", ahead)
	}
	// A bounce names the delivery only.
	ref := email.refs(t, 1)[0]
	ref.Attempt = uuid.Nil
	n.hears(t, receipt("email-main", ref, notify.Failed))
	if status, r := n.final(t, id); status != notify.Sent || r.Deliveries[0].Status != notify.Failed || len(sms.sent()) != 1 {
		t.Errorf("status %s, deliveries %+v", status, r.Deliveries)
	}
}

// Every receipt of a message, in one go, each of them twice.
func TestReceiptsOfManyMessagesAreAppliedTogether(t *testing.T) {
	t.Parallel()
	const many = 30
	sms, email := newReported(notify.SMS, accepts), newScript(notify.Email, ok)
	url, r := pgURL(t), registry(account(sms), account(email))
	n, _ := start(t, url, r), start(t, url, r)
	ids := n.acceptAll(t, alike(many, both, until(notify.SMS, notify.UntilDelivered), step(notify.Email))...)
	var all []store.Receipt
	for i, ref := range sms.refs(t, many) {
		last := notify.Read
		if i%3 == 0 {
			last = notify.Failed
		}
		for range 2 {
			all = append(all, receipt(smsMain, ref, last), receipt(smsMain, ref, notify.Sent))
		}
	}
	n.hears(t, all...)
	got := map[notify.Status]int{}
	for _, id := range ids {
		status, _ := n.final(t, id)
		got[status]++
	}
	if got[notify.Read] != many-many/3 || got[notify.Sent] != many/3 || len(email.sent()) != many/3 || len(sms.sent()) != many {
		t.Errorf("%v after %d sms and %d emails", got, len(sms.sent()), len(email.sent()))
	}
}

var _ dispatch.Metrics = (*tally)(nil)

func TestReceiptsAreCounted(t *testing.T) {
	t.Parallel()
	sms := newReported(notify.SMS, accepts)
	m := &tally{got: map[string]int{}}
	n := start(t, pgURL(t), registry(account(sms)), func(s *setup) { s.Metrics = m })
	id := n.accept(t, notification(both, step(notify.SMS)))
	ref := sms.refs(t, 1)[0]
	n.waiting(t, id, notify.WaitReceipt)
	n.hears(t, receipt(smsMain, ref, notify.Sent), receipt(smsMain, ref, notify.Delivered))
	n.hears(t, receipt(smsMain, ref, notify.Delivered))
	n.applied(t)
	eventually(t, "both are counted", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		total := 0
		for k, v := range m.got {
			if strings.HasPrefix(k, "receipt ") {
				total += v
			}
		}
		return total == 2 && m.got["receipt sms delivered"] == 1
	})
}
