package dispatch_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// twice puts every envelope into the queue two times.
type twice struct{ store.Queue }

func (q twice) Insert(ctx context.Context, tx pgx.Tx, envelopes []store.Envelope) ([]int64, error) {
	ids, err := q.Queue.Insert(ctx, tx, envelopes)
	if err != nil {
		return nil, err
	}
	_, err = q.Queue.Insert(ctx, tx, envelopes)
	return ids, err
}

func insertTwice(s *setup) {
	s.prepare = func(d *dispatch.Dispatcher, s *store.Store) { s.SetQueue(twice{d.Queue()}) }
}

func TestAJobThatRunsTwiceMakesOneCall(t *testing.T) {
	t.Parallel()
	url := pgURL(t)
	sms := newScript(notify.SMS, first(notify.ProviderUnavailable))
	one, other := start(t, url, registry(account(sms)), insertTwice), start(t, url, registry(account(sms)), insertTwice)
	for _, id := range one.acceptAll(t, alike(50, both, step(notify.SMS))...) {
		if status, r := other.final(t, id); status != notify.Sent || len(r.Attempts) != 2 {
			t.Errorf("status %s, %d attempts", status, len(r.Attempts))
		}
	}
	eventually(t, "all jobs have run", func() bool {
		return one.count(t, "select count(*) from dispatcher.river_job where state <> 'completed'") == 0
	})
	jobs := one.count(t, "select count(*) from dispatcher.river_job")
	if len(sms.sent()) != 100 || jobs < 8 {
		t.Errorf("%d calls by %d jobs, want 100", len(sms.sent()), jobs)
	}
}

func TestALostAnswerToACommitIsNoSecondMessage(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"accept", "claim", "record"} {
		for _, channel := range []notify.Channel{notify.SMS, notify.Email} {
			t.Run(what+" of "+string(channel), func(t *testing.T) {
				t.Parallel()
				s := newScript(channel, first(notify.ProviderUnavailable))
				var mu sync.Mutex
				lost := 0
				n := start(t, pgURL(t), registry(account(s)), func(s *setup) {
					s.prepare = func(d *dispatch.Dispatcher, _ *store.Store) {
						d.LoseAnswers(func(of string) bool {
							mu.Lock()
							defer mu.Unlock()
							if of != what || lost == 3 {
								return false
							}
							lost++
							return true
						})
					}
				})
				id := n.accept(t, notification(both, step(channel)))
				status, r := n.final(t, id)
				if status != notify.Sent || len(s.sent()) != 2 || len(r.Attempts) != 2 || r.Deliveries[0].Calls != 2 || lost == 0 {
					t.Errorf("status %s, %d calls, delivery %+v, %d answers lost", status, len(s.sent()), r.Deliveries[0], lost)
				}
				if got := story(n.events(t, id)); got != "accepted waiting:backoff sent." {
					t.Errorf("events %s", got)
				}
			})
		}
	}
}

func TestWhatAProviderSaysIsMadeFitToBeStored(t *testing.T) {
	t.Parallel()
	const ugly = "a\x00b\xff\xc3(\u202e\n"
	sms := newScript(notify.SMS, func(n int, _ *channels.Message) channels.Result {
		r := channels.Result{
			Outcome: notify.RecipientUnavailable, Code: ugly, Detail: strings.Repeat(ugly, 500), Scope: ugly, RetryAfter: time.Millisecond,
		}
		if n == 2 {
			r = channels.Result{Outcome: notify.Accepted, Status: "weird", MessageID: strings.Repeat(ugly, 500), HTTPStatus: 200}
		}
		return r
	})
	n := single(t, account(sms))
	status, r := n.final(t, n.accept(t, notification(both, step(notify.SMS))))
	if status != notify.Sent || len(r.Attempts) != 2 {
		t.Fatalf("status %s, attempts %+v", status, r.Attempts)
	}
	if a := r.Attempts[0]; a.ProviderCode != "a b\uFFFD(\u202e " || len(a.Detail) < 200 || len(r.Attempts[1].ProviderMessageID) < 200 {
		t.Errorf("attempts %+v", r.Attempts)
	}
}

func TestANotificationThatCannotBeStoredIsRefusedAndTheOthersAreNot(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	n := single(t, account(sms))
	const many = 40
	errs := make([]error, many)
	var wg sync.WaitGroup
	for i := range many {
		what := notification(both, step(notify.SMS))
		if i%10 == 3 {
			what.Reference = strings.Repeat("r", 300)
		}
		wg.Go(func() { _, errs[i] = n.Accept(t.Context(), store.Accept{Notification: what}) })
	}
	wg.Wait()
	for i, err := range errs {
		if bad := i%10 == 3; (store.Classify(err) == store.BadRow) != bad || !bad && err != nil {
			t.Errorf("notification %d: %v", i, err)
		}
	}
	eventually(t, "the others are sent", func() bool { return len(sms.sent()) == many-many/10 })
}

func TestAResultThatCannotBeStoredIsStoredWithoutItsDetail(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, func(_ int, m *channels.Message) channels.Result {
		r := channels.Ok("id")
		r.Detail = m.Reference
		return r
	})
	n := start(t, pgURL(t), registry(account(sms)), hold)
	n.exec(t, "alter table dispatcher.attempts add check (detail <> 'poison')")
	for i := range 30 {
		what := notification(both, step(notify.SMS))
		what.Reference = "fine"
		if i%10 == 7 {
			what.Reference = "poison"
		}
		n.accept(t, what)
	}
	n.Release()
	eventually(t, "all are final", func() bool {
		return n.count(t, "select count(*) from dispatcher.deliveries where status = 'sent'") == 30
	})
	if got := n.count(t, "select count(*) from dispatcher.attempts where detail = 'fine'"); got != 27 || len(sms.sent()) != 30 {
		t.Errorf("%d attempts have their detail, %d calls", got, len(sms.sent()))
	}
}

func TestAResultIsKeptUntilTheDatabaseTakesIt(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	n := start(t, pgURL(t), registry(account(sms)), hold)
	refused := n.accept(t, notification(both, step(notify.SMS)))
	n.exec(t, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'not now'; end $$`)
	n.exec(t, `create trigger refuse before insert on dispatcher.attempts for each row
		when (new.notification_id = '`+refused.String()+`') execute function refuse()`)
	var others []uuid.UUID
	for range 10 {
		others = append(others, n.accept(t, notification(both, step(notify.SMS))))
	}
	n.Release()
	for _, id := range others {
		n.final(t, id)
	}
	n.until(t, refused, "claimed", func(r record) bool { return r.Deliveries[0].Status == notify.Sending })
	n.exec(t, "drop trigger refuse on dispatcher.attempts")
	if status, r := n.final(t, refused); status != notify.Sent || len(r.Attempts) != 1 || len(sms.sent()) != 11 {
		t.Errorf("status %s, attempts %+v, %d calls", status, r.Attempts, len(sms.sent()))
	}
}

func TestANotificationThatCannotBeReadEndsWithoutTheOthers(t *testing.T) {
	t.Parallel()
	for name, column := range map[string]string{"content": "content = '[]'", "chain": "chain = '[1]'", "recipient": "recipient = '7'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sms, email, push := newScript(notify.SMS, ok), newScript(notify.Email, ok), pushScript(dead)
			n := start(t, pgURL(t), registry(account(sms), account(email), account(push)), hold)
			whole := notification(both, step(notify.SMS), step(notify.Email))
			all := whole
			all.ID, all.Mode = uuid.Must(uuid.NewV7()), notify.All
			many := notification(devices(), step(notify.Push), step(notify.Email))
			waits := notification(both, step(notify.SMS), step(notify.Email))
			waits.SendAt = waits.CreatedAt.Add(time.Millisecond)
			bad := []uuid.UUID{n.accept(t, whole), n.accept(t, all), n.accept(t, many), n.accept(t, waits)}
			n.exec(t, "update dispatcher.notifications set "+column)
			good := n.accept(t, notification(both, step(notify.SMS)))
			n.Release()
			n.final(t, good)
			for _, id := range bad {
				eventually(t, "it ends", func() bool {
					return n.count(t, "select count(*) from dispatcher.deliveries where not final") == 0
				})
				if got := n.count(t, "select count(*) from dispatcher.deliveries where notification_id = $1 and because is distinct from 'invalid'", id); got != 0 {
					t.Errorf("%d deliveries ended for another reason", got)
				}
				if got := n.count(t, "select count(*) from dispatcher.events where notification_id = $1 and final", id); got != 1 {
					t.Errorf("%d final events", got)
				}
			}
			if len(sms.sent()) != 1 || len(email.sent())+len(push.sent()) != 0 {
				t.Errorf("%d sms, %d email and %d push calls", len(sms.sent()), len(email.sent()), len(push.sent()))
			}
		})
	}
}

func TestAClaimRefusedByTheDatabasesClockIsNoSuppression(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	n := start(t, pgURL(t), registry(account(sms)), hold, func(s *setup) {
		s.Now = func() time.Time { return time.Now().Add(-time.Minute) } // this node's clock is behind
	})
	what := notification(both, step(notify.SMS))
	what.ExpiresAt = what.CreatedAt.Add(200 * time.Millisecond)
	n.accept(t, what)
	eventually(t, "it has expired", func() bool {
		return n.count(t, "select count(*) from dispatcher.deliveries where expires_at < clock_timestamp()") == 1
	})
	n.Release()
	if status, r := n.final(t, what.ID); status != notify.Lapsed || r.Deliveries[0].Because != "expired" || len(sms.sent()) != 0 {
		t.Errorf("status %s, delivery %+v", status, r.Deliveries[0])
	}
}

// fragile is metrics that panic once, after the call was made.
type fragile struct {
	tally
	once sync.Once
}

func (f *fragile) Attempt(c notify.Channel, o notify.Outcome, took time.Duration) {
	f.once.Do(func() { panic("of ours") })
	f.tally.Attempt(c, o, took)
}

func TestAPanicOfOursAfterTheCallLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	email := newScript(notify.Email, ok)
	n := start(t, pgURL(t), registry(account(email)), hold, func(s *setup) { s.Metrics = &fragile{tally: tally{got: map[string]int{}}} })
	const many = 10
	var ids []uuid.UUID
	for range many {
		ids = append(ids, n.accept(t, notification(both, step(notify.Email))))
	}
	n.Release()
	crashes := 0
	for _, id := range ids {
		status, r := n.final(t, id)
		if status != notify.Sent {
			t.Errorf("status %s", status)
		}
		if d := r.Deliveries[0]; d.Crashes == 1 {
			crashes++
			if a := r.Attempts; len(a) != 2 || a[0].Outcome != notify.Unknown || !a[1].PossibleDuplicate {
				t.Errorf("attempts %+v", a)
			}
		}
	}
	if crashes != 1 || len(email.sent()) != many+1 {
		t.Errorf("%d crashes, %d calls", crashes, len(email.sent()))
	}
}

func TestACountThatIsFullStopsNothing(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, func(n int, _ *channels.Message) channels.Result {
		if n == 1 {
			return channels.Result{Outcome: notify.Throttled, RetryAfter: time.Millisecond}
		}
		return channels.Ok("id")
	})
	n := start(t, pgURL(t), registry(account(sms)), hold)
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.exec(t, "update dispatcher.deliveries set calls = 32767, throttles = 32767")
	n.Release()
	if status, r := n.final(t, id); status != notify.Sent || len(r.Attempts) != 2 {
		t.Errorf("status %s, attempts %+v", status, r.Attempts)
	}
}
