package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/app"
)

// clients is how many callers send single POSTs at once.
const clients = 64

// accepting measures how fast notifications are accepted by a node that sends
// nothing, as its API alone does; do sends them all.
func accepting(do func(ctx context.Context, s *service, messages [][]byte) error) func(context.Context, *bench) (Sample, error) {
	return func(ctx context.Context, b *bench) (_ Sample, err error) {
		s, err := b.startService(ctx, app.ModeAPI, 1)
		if err != nil {
			return Sample{}, err
		}
		defer func() { err = errors.Join(err, s.stop(ctx)) }()
		// The first requests open connections and prepare statements.
		if err := do(ctx, s, b.messages(webhooks, 0, min(b.o.Count, 1000))); err != nil {
			return Sample{}, err
		}
		if err := s.d.settle(ctx); err != nil {
			return Sample{}, err
		}
		messages := b.messages(webhooks, 1_000_000, b.o.Count)
		before, err := s.accepted(ctx)
		if err != nil {
			return Sample{}, err
		}
		m, err := b.begin(ctx, s.d, s.nodes...)
		if err != nil {
			return Sample{}, err
		}
		if err := do(ctx, s, messages); err != nil {
			return Sample{}, err
		}
		sample, err := m.end(ctx, len(messages), time.Now())
		if err != nil {
			return Sample{}, err
		}
		after, err := s.accepted(ctx)
		if err == nil && after-before != len(messages) {
			err = fmt.Errorf("verify: %d of %d notifications are there with their deliveries", after-before, len(messages))
		}
		return sample, err
	}
}

// accepted counts the notifications that have a delivery.
func (s *service) accepted(ctx context.Context) (n int, err error) {
	err = s.d.pool.QueryRow(ctx, "select count(*) from dispatcher.notifications n join dispatcher.deliveries d on d.notification_id = n.id").Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count notifications: %w", err)
	}
	return n, nil
}

// inBatches sends batches of a size, as JSON or lines.
func inBatches(media string, size int) func(context.Context, *service, [][]byte) error {
	return func(ctx context.Context, s *service, messages [][]byte) error {
		return s.send(ctx, load{messages: messages, media: media, size: size})
	}
}

// oneByOne sends single POSTs from many clients.
func oneByOne(ctx context.Context, s *service, messages [][]byte) error {
	var next atomic.Int64
	return parallel(clients, func() error {
		addr := s.addr()
		c, err := dialCaller(ctx, addr)
		if err != nil {
			return err
		}
		defer c.close()
		for {
			i := int(next.Add(1)) - 1
			if i >= len(messages) || ctx.Err() != nil {
				return ctx.Err()
			}
			status, answer, err := c.do(s.b.post(addr, "/v1/notifications", messages[i]))
			if err != nil {
				return err
			}
			if status != http.StatusAccepted {
				return fmt.Errorf("send a notification: status %d: %.300s", status, answer)
			}
		}
	})
}

// sqlSessions is how many sessions enqueue in SQL at once.
const sqlSessions = 16

// inSQL enqueues each notification in a transaction of its own, as services do
// beside their own rows.
func inSQL(ctx context.Context, s *service, messages [][]byte) error {
	var next atomic.Int64
	return parallel(sqlSessions, func() error {
		c, err := s.d.pool.Acquire(ctx)
		if err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
		defer c.Release()
		for {
			i := int(next.Add(1)) - 1
			if i >= len(messages) {
				return nil
			}
			if _, err := c.Exec(ctx, "select dispatcher.enqueue($1::jsonb)", withProject(messages[i])); err != nil {
				return fmt.Errorf("enqueue: %w", err)
			}
		}
	})
}

// inSQLBulk enqueues a thousand notifications a statement, in one session.
func inSQLBulk(ctx context.Context, s *service, messages [][]byte) error {
	for len(messages) > 0 {
		n := min(len(messages), 1000)
		bodies := make([]string, n)
		for i := range bodies {
			bodies[i] = withProject(messages[i])
		}
		messages = messages[n:]
		if _, err := s.d.pool.Exec(ctx, "select dispatcher.enqueue(b::jsonb) from unnest($1::text[]) b", bodies); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	return nil
}

func withProject(message []byte) string { return `{"project":"` + project + `",` + string(message[1:]) }

// parallel runs n of do and joins what went wrong.
func parallel(n int, do func() error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
