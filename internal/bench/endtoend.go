package bench

import (
	"context"
	"errors"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/app"
)

// steadyWindow is how many notifications are under way at most while a steady load
// is delivered: enough that nobody waits for work.
const steadyWindow = 1500

// endToEnd measures how many notifications of a channel are accepted in batches,
// called and recorded, by so many nodes.
func endToEnd(c channel, nodes, window int) func(context.Context, *bench) (Sample, error) {
	return func(ctx context.Context, b *bench) (_ Sample, err error) {
		s, err := b.startService(ctx, app.ModeAll, nodes)
		if err != nil {
			return Sample{}, err
		}
		defer func() { err = errors.Join(err, s.stop(ctx)) }()
		if err := s.warm(ctx, c); err != nil {
			return Sample{}, err
		}
		return s.deliver(ctx, c, b.o.Count, window)
	}
}

// deliver measures the delivery of n notifications and verifies it.
func (s *service) deliver(ctx context.Context, c channel, n, window int) (Sample, error) {
	l := load{messages: s.b.messages(c, 1_000_000, n), media: jsonType, size: 250, window: window}
	mark, err := s.prepare(ctx)
	if err != nil {
		return Sample{}, err
	}
	m, err := s.b.begin(ctx, s.d, s.nodes...)
	if err != nil {
		return Sample{}, err
	}
	if err := s.send(ctx, l); err != nil {
		return Sample{}, err
	}
	accepted := time.Now()
	if err := s.awaitDone(ctx, c, mark, n); err != nil {
		return Sample{}, err
	}
	sample, err := m.end(ctx, n, time.Now())
	if err != nil {
		return Sample{}, err
	}
	if window == 0 {
		sample.More = map[string]float64{"accepted/s meanwhile": float64(n) / accepted.Sub(m.began).Seconds()}
	}
	return sample, s.verify(ctx, c, mark, n)
}
