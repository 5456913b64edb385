package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// queued counts the deliveries of a project in jobs of a channel that nobody has
// fetched.
const queued = `select coalesce(sum(jsonb_array_length(args -> 'i')), 0) from dispatcher.river_job
	where state = 'available' and queue = $1 and args ->> 'p' = $2`

// Every way into the queue is bounded by the project's share. Nobody fetches what
// is in the channel's queue; the test takes it out.
func TestAProjectHasNoMoreThanItsShareInTheQueueHoweverItComesThere(t *testing.T) {
	t.Parallel()
	const share, many = 10, 35
	for way, c := range map[string]struct {
		channel notify.Channel
		project string // default is "flood"
		enter   func(t *testing.T, n *node)
	}{
		"accepted": {channel: notify.Email, enter: func(t *testing.T, n *node) {
			for range many {
				n.accept(t, of("flood", notification(both, step(notify.Email))))
			}
		}},
		"accepted for later": {channel: notify.Email, enter: func(t *testing.T, n *node) {
			for range many {
				what := of("flood", notification(both, step(notify.Email)))
				what.SendAt = what.CreatedAt.Add(30 * time.Minute)
				n.accept(t, what)
			}
			n.exec(t, "update dispatcher.waits set due = now()")
		}},
		"enqueued in SQL": {channel: notify.Email, enter: func(t *testing.T, n *node) {
			n.exec(t, `select dispatcher.enqueue(jsonb_build_object('project', 'flood', 'to', jsonb_build_object('email', 'a' || i || '@example.com'),
				'chain', '[{"channel": "email"}]'::jsonb, 'content', '{"title": "t", "body": "b"}'::jsonb)) from generate_series(1, $1) i`, many)
		}},
		"after a failed step": {channel: notify.Email, enter: func(t *testing.T, n *node) {
			for range many {
				n.accept(t, of("flood", notification(both, step(notify.SMS), step(notify.Email))))
			}
		}},
		"after a step of several targets": {channel: notify.Email, enter: func(t *testing.T, n *node) {
			to := notify.To{Email: both.Email, Push: []notify.Device{{Provider: "fcm", Token: "a"}, {Provider: "fcm", Token: "b"}}}
			for range many {
				n.accept(t, of("flood", notification(to, step(notify.Push), step(notify.Email))))
			}
		}},
		"after a pause between retries": {channel: notify.SMS, enter: func(t *testing.T, n *node) {
			for range many {
				what := of("flood", notification(both, step(notify.SMS)))
				what.SendAt = what.CreatedAt.Add(30 * time.Minute)
				n.accept(t, what)
			}
			n.exec(t, "update dispatcher.waits set reason = 'backoff', due = now()")
		}},
		"retried by an operator": {channel: notify.Email, enter: func(t *testing.T, n *node) {
			var ids []uuid.UUID
			for range many {
				ids = append(ids, n.accept(t, of("flood", notification(both, step(notify.SMS)))))
			}
			eventually(t, "all have failed", func() bool {
				return n.count(t, "select count(*) from dispatcher.deliveries where final and status = 'failed'") == many
			})
			n.exec(t, `update dispatcher.notifications set chain = '[{"channel": "email"}]'`)
			for _, id := range ids {
				if _, err := n.Retry(t.Context(), "flood", id, time.Time{}); err != nil {
					t.Fatal(err)
				}
			}
		}},
		"as calls of a status webhook": {channel: notify.Webhook, project: store.HiddenProject("flood"), enter: func(t *testing.T, n *node) {
			hook := store.Webhook{ID: uuid.New(), Project: "flood", URL: "https://example.com/", Events: []string{"failed"}}
			if _, err := n.store.CreateWebhook(t.Context(), hook, secret.New("whsec_x")); err != nil {
				t.Fatal(err)
			}
			for range many {
				n.accept(t, of("flood", notification(both, step(notify.SMS))))
			}
			fed := 0
			eventually(t, "all events are fed", func() bool {
				_, err := n.store.FeedWebhooks(t.Context(), 100, func(events []store.WebhookEvent) (calls []store.Acceptance, err error) {
					for range events {
						call := notification(notify.To{Webhook: &notify.WebhookTarget{URL: hook.URL}}, step(notify.Webhook))
						calls = append(calls, n.Acceptance(of(store.HiddenProject("flood"), call)))
					}
					fed += len(events)
					return calls, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return fed == many
			})
		}},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			project := c.project
			if project == "" {
				project = "flood"
			}
			url := pgURL(t)
			broken, push := newScript(notify.SMS, always(notify.RecipientRejected)), newScript(notify.Push, always(notify.RecipientRejected))
			push.info.Provider = "fcm"
			hidden := account(newScript(notify.Webhook, func(int, *channels.Message) channels.Result { return channels.Ok("id") }))
			hidden.Hidden = true
			r := limited(64, account(broken), account(push), account(newScript(notify.Email, ok)), hidden)
			n := start(t, url, r, func(s *setup) {
				s.QueueShare, s.SweepEvery = share, time.Hour
				s.prepare = func(_ *dispatch.Dispatcher, of *store.Store) { pauseQueue(t, of, c.channel) }
			})
			c.enter(t, n)
			eventually(t, "all are there, and some are held", func() bool {
				held := n.count(t, "select count(*) from dispatcher.waits where held and scope = $1 and project = $2", "queue:"+string(c.channel), project)
				return held > 0 && held+n.count(t, queued, string(c.channel), project) == many
			})
			seen := map[string]bool{}
			eventually(t, "all have been in the queue", func() bool {
				now := n.count(t, queued, string(c.channel), project)
				// A count that does not see the last ones yet, since their transaction takes
				// long, may let in as many again.
				if now > 2*share {
					t.Fatalf("%d are in the queue, want %d", now, share)
				}
				if rest := many - len(seen); now < min(share, rest) {
					return false // the others come
				}
				n.takeOut(t, string(c.channel), seen)
				return len(seen) == many
			})
		})
	}
}

func of(project string, n notify.Notification) notify.Notification {
	n.Project = project
	return n
}

// pauseQueue makes the node that starts next fetch nothing of a channel.
func pauseQueue(t *testing.T, s *store.Store, c notify.Channel) {
	t.Helper()
	_, err := s.Pool().Exec(context.Background(), `insert into dispatcher.river_queue (name, created_at, updated_at, paused_at)
		values ($1, now(), now(), now())`, string(c))
	if err != nil {
		t.Fatal(err)
	}
}

// takeOut removes what is in a channel's queue, and notes which deliveries that is.
func (n *node) takeOut(t *testing.T, channel string, seen map[string]bool) {
	t.Helper()
	rows, err := n.store.Pool().Query(t.Context(), `with gone as (delete from dispatcher.river_job where state = 'available' and queue = $1 returning args)
		select concat(item ->> 'n', ' step ', item ->> 's', ' target ', item ->> 't', ' turn ', item ->> 'u') from gone, jsonb_array_elements(args -> 'i') item`, channel)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			t.Fatal(err)
		}
		if seen[key] {
			t.Errorf("%s was in the queue twice", key)
		}
		seen[key] = true
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestTheSharesOfProjectsAreApart(t *testing.T) {
	t.Parallel()
	n := start(t, pgURL(t), limited(64, account(newScript(notify.Email, ok))), func(s *setup) {
		s.QueueShare, s.SweepEvery = 10, time.Hour
		s.prepare = func(_ *dispatch.Dispatcher, of *store.Store) { pauseQueue(t, of, notify.Email) }
	})
	for i := range 60 {
		what := of("flood", notification(both, step(notify.Email)))
		if n.accept(t, what); i%6 == 0 {
			n.accept(t, of("other", notification(both, step(notify.Email))))
			urgent := of("flood", notification(both, step(notify.Email)))
			urgent.Priority = notify.Critical
			n.accept(t, urgent)
		}
	}
	// Ten normal and ten critical ones of the flood, and all of the other's. A count
	// may miss the last ones or have them twice, which the next one puts right.
	eventually(t, "each project has its share in the queue", func() bool {
		flood, other := n.count(t, queued, "email", "flood"), n.count(t, queued, "email", "other")
		held := n.count(t, "select count(*) from dispatcher.waits where held and scope = 'queue:email'")
		return flood >= 20 && flood <= 24 && other == 10 && flood+held == 70
	})
}
