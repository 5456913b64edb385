package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/app"
)

// breaker measures what a tenth of the backlog costs while its account's breaker
// is open, and how soon it moves when the breaker is closed.
func breaker(ctx context.Context, b *bench) (_ Sample, err error) {
	s, err := b.startService(ctx, app.ModeAll, 1)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	if err := s.warm(ctx, webhooks); err != nil {
		return Sample{}, err
	}
	n, watched := max(b.o.Backlog/10, 1), 20*time.Second
	if b.o.Small {
		watched = time.Second
	}
	mark, err := s.prepare(ctx)
	if err != nil {
		return Sample{}, err
	}
	sample := Sample{More: map[string]float64{}}
	if err := s.watch(ctx, sample.More, watched, "idle"); err != nil {
		return Sample{}, err
	}
	const path = "/v1/channels/webhook-main/breaker"
	if err := b.operate(ctx, s.addr(), path, `{"action":"open","why":"benchmark"}`); err != nil {
		return Sample{}, err
	}
	messages := b.messages(webhooks, 1_000_000, n)
	if err := s.send(ctx, load{messages: messages, media: jsonType, size: 1000}); err != nil {
		return Sample{}, err
	}
	if err := s.awaitHeld(ctx, n); err != nil {
		return Sample{}, err
	}
	if err := s.d.settle(ctx); err != nil {
		return Sample{}, err
	}
	if err := s.watch(ctx, sample.More, watched, "waiting"); err != nil {
		return Sample{}, err
	}
	var calls int64
	if err := b.sink.ask(ctx, order{Do: doCalls}, &calls); err != nil {
		return Sample{}, err
	}
	if calls != 0 {
		return Sample{}, fmt.Errorf("verify: %d calls passed an open breaker", calls)
	}
	closed := time.Now()
	if err := b.operate(ctx, s.addr(), path, `{"action":"reset","why":"benchmark"}`); err != nil {
		return Sample{}, err
	}
	if err := s.awaitCalls(ctx, 1); err != nil {
		return Sample{}, err
	}
	sample.Value = float64(time.Since(closed)) / float64(time.Millisecond)
	if err := s.awaitDone(ctx, webhooks, mark, n); err != nil {
		return Sample{}, err
	}
	sample.More["/s delivered then"] = float64(n) / time.Since(closed).Seconds()
	return sample, s.verify(ctx, webhooks, mark, n)
}

// awaitHeld returns when so many deliveries wait for the breaker.
func (s *service) awaitHeld(ctx context.Context, n int) error {
	var held int64
	return await(ctx, func() (int64, bool, error) {
		err := s.d.pool.QueryRow(ctx, "select count(*) from dispatcher.waits where reason = 'breaker_open'").Scan(&held)
		return held, held >= int64(n), err
	}, func() string { return fmt.Sprintf("%d of %d deliveries were held", held, n) })
}

// watch measures what the service costs for a while in which nothing is done.
func (s *service) watch(ctx context.Context, into map[string]float64, d time.Duration, when string) error {
	defer s.b.profileAs(when)()
	m, err := s.b.begin(ctx, s.d, s.nodes...)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
	}
	seconds := time.Since(m.began).Seconds()
	used, err := m.end(ctx, 1, time.Now()) // costs are of one such while, and CPU of a thousand
	if err != nil {
		return err
	}
	into["% of a core for the service, "+when] = used.Cost.Service / 1000 / seconds * 100
	into["% of a core for PostgreSQL, "+when] = used.Cost.Server / 1000 / seconds * 100
	into["transactions/s, "+when] = used.Cost.Queries / seconds
	into["WAL bytes/s, "+when] = used.Cost.WAL / seconds
	return nil
}
