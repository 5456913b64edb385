package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/app"
	"github.com/notification-dispatcher/dispatcher/internal/bench/sink"
)

// trickle is a low load: single POSTs, with the gaps of callers who know nothing
// of each other.
type trickle struct {
	perSecond float64
	first     int
	n         int
	// message is the body of a POST.
	message func(n int) []byte
}

// times is when a trickle's POSTs were sent and answered, by their number.
type times map[int64][2]time.Time

// run sends the trickle to the service.
func (t trickle) run(ctx context.Context, s *service) (times, error) {
	addr := s.addr()
	c, err := dialCaller(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.close()
	random := rand.New(rand.NewPCG(1, 2))
	out, next := times{}, time.Now()
	for i := range t.n {
		next = next.Add(time.Duration(random.ExpFloat64() / t.perSecond * float64(time.Second)))
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Until(next)):
		}
		n := t.first + i
		request := s.b.post(addr, "/v1/notifications", t.message(n))
		sent := time.Now()
		status, answer, err := c.do(request)
		if err != nil {
			return nil, err
		}
		if status != http.StatusAccepted {
			return nil, fmt.Errorf("send a notification: status %d: %.300s", status, answer)
		}
		out[int64(n)] = [2]time.Time{sent, time.Now()}
	}
	return out, nil
}

// arrivals is how long it took from POST to call, and from the answer to the call
// (negative where the call was first), in milliseconds and in order. Each must
// have come.
func (s *service) arrivals(ctx context.Context, t times) (sinceSent, sinceAnswer []float64, err error) {
	var list []sink.Arrival
	if err := s.b.sink.ask(ctx, order{Do: doArrivals}, &list); err != nil {
		return nil, nil, err
	}
	ms := func(from, to time.Time) float64 { return float64(to.Sub(from)) / float64(time.Millisecond) }
	for _, a := range list {
		at, ok := t[a.Number]
		if !ok {
			continue
		}
		delete(t, a.Number) // a repeated call is none
		sinceSent = append(sinceSent, ms(at[0], time.Unix(0, a.At)))
		sinceAnswer = append(sinceAnswer, ms(at[1], time.Unix(0, a.At)))
	}
	if len(t) > 0 || len(sinceSent) == 0 {
		return nil, nil, fmt.Errorf("verify: %d calls did not come", len(t))
	}
	slices.Sort(sinceSent)
	slices.Sort(sinceAnswer)
	return sinceSent, sinceAnswer, nil
}

// quantile of sorted values: the smallest that so large a part does not exceed.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(min(int(q*float64(len(sorted))+0.999999), len(sorted))-1, 0)]
}

// latency measures how long it takes from a POST to the provider's call at ten a
// second.
func latency(ctx context.Context, b *bench) (_ Sample, err error) {
	s, err := b.startService(ctx, app.ModeAll, 1)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	if err := s.warm(ctx, webhooks); err != nil {
		return Sample{}, err
	}
	t := trickle{perSecond: 10, first: 1_000_000, n: 200, message: func(n int) []byte { return webhooks.message(b.hosts(), n) }}
	if b.o.Small {
		t.perSecond, t.n = 50, 20
	}
	mark, err := s.prepare(ctx)
	if err != nil {
		return Sample{}, err
	}
	m, err := b.begin(ctx, s.d, s.nodes...)
	if err != nil {
		return Sample{}, err
	}
	sent, err := t.run(ctx, s)
	if err != nil {
		return Sample{}, err
	}
	if err := s.awaitDone(ctx, webhooks, mark, t.n); err != nil {
		return Sample{}, err
	}
	ended := time.Now()
	used, err := m.end(ctx, t.n, ended)
	if err != nil {
		return Sample{}, err
	}
	sinceSent, sinceAnswer, err := s.arrivals(ctx, sent)
	if err != nil {
		return Sample{}, err
	}
	seconds := ended.Sub(m.began).Seconds()
	sample := Sample{Value: quantile(sinceSent, 0.99), Statements: used.Statements, More: map[string]float64{
		"ms median": quantile(sinceSent, 0.5), "ms at most": sinceSent[len(sinceSent)-1],
		"ms median from the answer to the call": quantile(sinceAnswer, 0.5), "ms p99 from the answer to the call": quantile(sinceAnswer, 0.99),
		"% of a core for the service": used.Cost.Service * float64(t.n) / 1000 / seconds * 100,
		"% of a core for PostgreSQL":  used.Cost.Server * float64(t.n) / 1000 / seconds * 100,
	}}
	return sample, s.verify(ctx, webhooks, mark, t.n)
}

// besideSlow measures the latency of a healthy destination while many messages
// wait for a slow one.
func besideSlow(ctx context.Context, b *bench) (_ Sample, err error) {
	s, err := b.startService(ctx, app.ModeAll, 1)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	if err := s.warm(ctx, webhooks); err != nil {
		return Sample{}, err
	}
	many, delay, t := 1000, 4000, trickle{perSecond: 10, n: 150}
	if b.o.Small {
		many, delay, t = 50, 300, trickle{perSecond: 50, n: 20}
	}
	all := b.sink.started.Hosts
	slow := make([][]byte, many)
	for i := range slow {
		slow[i] = webhookMessage(fmt.Sprintf("http://%s/slow/%d/%d", all[len(all)-1], delay, i), i, "")
	}
	t.first, t.message = 1_000_000, func(n int) []byte { return webhooks.message(b.hosts(), n) }
	mark, err := s.prepare(ctx)
	if err != nil {
		return Sample{}, err
	}
	began := time.Now()
	if err := s.send(ctx, load{messages: slow, media: jsonType, size: 500}); err != nil {
		return Sample{}, err
	}
	sent, err := t.run(ctx, s)
	if err != nil {
		return Sample{}, err
	}
	if err := s.awaitDone(ctx, webhooks, mark, many+t.n); err != nil {
		return Sample{}, err
	}
	took := time.Since(began)
	sinceSent, _, err := s.arrivals(ctx, sent)
	if err != nil {
		return Sample{}, err
	}
	sample := Sample{Value: quantile(sinceSent, 0.99), More: map[string]float64{
		"ms median": quantile(sinceSent, 0.5), "ms at most": sinceSent[len(sinceSent)-1], "s until the slow ones were done": took.Seconds(),
	}}
	return sample, s.verify(ctx, webhooks, mark, many+t.n)
}
