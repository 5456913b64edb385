package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"text/template"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/app"
	"github.com/notification-dispatcher/dispatcher/internal/bench/sink"
)

// service is the service on a database of its own.
type service struct {
	b     *bench
	d     *database
	nodes []*part
	next  atomic.Int64 // of the nodes, to send to
}

// startService starts so many nodes on a new database.
func (b *bench) startService(ctx context.Context, mode app.Mode, nodes int) (_ *service, err error) {
	d, err := b.newDatabase(ctx, forService)
	if err != nil {
		return nil, err
	}
	s := &service{b: b, d: d}
	for range nodes {
		if err := s.addNode(ctx, mode); err != nil {
			return nil, errors.Join(err, s.stop(ctx))
		}
	}
	return s, nil
}

func (s *service) addNode(ctx context.Context, mode app.Mode) error {
	text, err := s.b.nodeConfig()
	if err != nil {
		return err
	}
	p, err := s.b.startPart(ctx, start{Kind: kindNode, Config: text, Database: s.d.url, Mode: string(mode)})
	if err != nil {
		return err
	}
	s.nodes = append(s.nodes, p)
	return nil
}

// stop ends the nodes and drops the database.
func (s *service) stop(ctx context.Context) error {
	return errors.Join(s.stopNodes(), s.b.drop(ctx, s.d))
}

func (s *service) stopNodes() error {
	var errs []error
	for _, n := range s.nodes {
		errs = append(errs, n.stop())
	}
	s.nodes = nil
	return errors.Join(errs...)
}

// addr is the API of a node, of each in turn.
func (s *service) addr() string {
	return s.nodes[int(s.next.Add(1))%len(s.nodes)].started.Addr
}

// configText is the configuration of a node. No limit of the API is in the way.
const configText = `
http:
  limits:
    write: {per_second: 1000000, burst: 1000000}
    read: {per_second: 1000000, burst: 1000000}
    admin: {per_second: 1000000, burst: 1000000}
    unauthenticated: {per_second: 1000000, burst: 1000000}
log: {level: warn}
channels:
  webhook:
    max_in_flight: {{.InFlight}}
    accounts:
      - name: webhook-main
        provider: webhook
        secrets: ["whsec_YmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gtYmU="]
        allow_private: [{{range .Hosts}}"{{.}}", {{end}}]
  sms:
    max_in_flight: {{.InFlight}}
    accounts:
      - name: twilio-main
        provider: twilio
        account_sid: AC00000000000000000000000000000001
        auth_token: bench
        from: "+15005550006"
        base_url: http://{{index .Hosts 0}}
  email:
    max_in_flight: {{.InFlight}}
    accounts:
      - name: smtp-main
        provider: smtp
        from: {address: bench@example.com}
        host: {{.SMTPHost}}
        port: {{.SMTPPort}}
        tls: none
        max_connections: 256
`

func (b *bench) nodeConfig() (string, error) {
	t, err := template.New("config").Parse(configText)
	if err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	host, port, err := net.SplitHostPort(b.sink.started.SMTP)
	if err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{"InFlight": b.o.InFlight, "Hosts": b.sink.started.Hosts, "SMTPHost": host, "SMTPPort": port})
	return out.String(), err
}

// load is a number of notifications to send in batches.
type load struct {
	messages [][]byte
	media    string
	size     int // of a batch
	// window bounds how many may be under way, accepted and not called yet; 0 for
	// no bound.
	window int
}

// senders is how many batches are sent at once.
const senders = 2

// hosts are the destinations of webhooks. The sink has one more, which is slow.
func (b *bench) hosts() []string { return b.sink.started.Hosts[:b.o.Hosts] }

// messages makes n messages of a channel, numbered from the first on.
func (b *bench) messages(c channel, first, n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = c.message(b.hosts(), first+i)
	}
	return out
}

// send sends all of a load.
func (s *service) send(ctx context.Context, l load) error {
	var sent atomic.Int64 // taken by a sender
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for range senders {
		wg.Go(func() {
			for {
				to := min(int(sent.Add(int64(l.size))), len(l.messages)+l.size)
				from := to - l.size
				if from >= len(l.messages) {
					return
				}
				part := l.messages[from:min(to, len(l.messages))]
				err := s.awaitRoom(ctx, to, l.window)
				if err == nil {
					err = s.b.accept(ctx, s.addr(), l.media, batch(l.media, part), len(part))
				}
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// pollEvery is how often this process looks how far things have come.
const pollEvery = 5 * time.Millisecond

// awaitRoom returns when no more than window of the first to are not called yet.
func (s *service) awaitRoom(ctx context.Context, to, window int) error {
	if window == 0 {
		return nil
	}
	return s.awaitCalls(ctx, int64(to-window))
}

// awaitCalls returns when the sink was called so often. It fails when nothing more
// comes.
func (s *service) awaitCalls(ctx context.Context, n int64) error {
	var calls int64
	return await(ctx, func() (progress int64, done bool, err error) {
		err = s.b.sink.ask(ctx, order{Do: doCalls}, &calls)
		return calls, calls >= n, err
	}, func() string { return fmt.Sprintf("%d of %d calls", calls, n) })
}

// stalled is how long nothing may happen.
const stalled = 2 * time.Minute

// await polls until done. It fails when there is no progress any more.
func await(ctx context.Context, poll func() (progress int64, done bool, err error), what func() string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	last, at := int64(-1), time.Now()
	for {
		progress, done, err := poll()
		if err != nil || done {
			return err
		}
		if progress != last {
			last, at = progress, time.Now()
		}
		if time.Since(at) > stalled {
			return fmt.Errorf("nothing happens any more after %s", what())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// mark is where the events are now; what is checked later begins after it.
func (s *service) mark(ctx context.Context) (event int64, err error) {
	if err := s.d.pool.QueryRow(ctx, "select coalesce(max(id), 0) from dispatcher.events").Scan(&event); err != nil {
		return 0, fmt.Errorf("read events: %w", err)
	}
	return event, nil
}

// awaitDone returns when so many notifications have come as far as they can since
// the mark.
func (s *service) awaitDone(ctx context.Context, c channel, mark int64, n int) error {
	if err := s.awaitCalls(ctx, int64(n)); err != nil {
		return err
	}
	const doneSQL = "select count(*) from dispatcher.events where id > $1 and case when $2 then final else type = $3 and step is not null end"
	var done int64
	return await(ctx, func() (int64, bool, error) {
		err := s.d.pool.QueryRow(ctx, doneSQL, mark, c.final, c.status).Scan(&done)
		return done, done >= int64(n), err
	}, func() string { return fmt.Sprintf("%d of %d notifications", done, n) })
}

const verifySQL = `
with e as (select notification_id, final, type, step from dispatcher.events where id > $1),
  f as (select distinct notification_id from e where case when $2 then final else type = $3 and step is not null end)
select (select count(distinct notification_id) from e where type = 'accepted'), (select count(*) from f),
  (select count(*) from f join dispatcher.notifications n on n.id = f.notification_id),
  (select count(*) from f join dispatcher.deliveries d using (notification_id) where d.final = $2 and d.status = $3),
  (select count(distinct a.notification_id) from f join dispatcher.attempts a using (notification_id) where a.outcome = 'accepted')`

// verify checks that n notifications have every row that they should have since
// the mark, and that the sink received each once or more.
func (s *service) verify(ctx context.Context, c channel, mark int64, n int) error {
	var rows [5]int
	err := s.d.pool.QueryRow(ctx, verifySQL, mark, c.final, c.status).Scan(&rows[0], &rows[1], &rows[2], &rows[3], &rows[4])
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	var received sink.Stats
	if err := s.b.sink.ask(ctx, order{Do: doStats}, &received); err != nil {
		return err
	}
	for i, name := range []string{"accepted events", "events of the end", "notifications", "deliveries that are " + c.status, "attempts"} {
		if rows[i] != n {
			return fmt.Errorf("verify: %d %s of %d notifications", rows[i], name, n)
		}
	}
	if received.Distinct != int64(n) || received.Refused != 0 {
		return fmt.Errorf("verify: the sink received %d different messages of %d (and refused %d)", received.Distinct, n, received.Refused)
	}
	return nil
}

// warm delivers a few notifications, so that connections, statements and
// statistics are there.
func (s *service) warm(ctx context.Context, c channel) error {
	n := min(s.b.o.Count, 1000)
	mark, err := s.prepare(ctx)
	if err != nil {
		return err
	}
	if err := s.send(ctx, load{messages: s.b.messages(c, 0, n), media: jsonType, size: min(n, 250)}); err != nil {
		return err
	}
	if err := s.awaitDone(ctx, c, mark, n); err != nil {
		return err
	}
	return s.d.settle(ctx)
}

// prepare forgets what the sink received, and returns the mark.
func (s *service) prepare(ctx context.Context) (mark int64, err error) {
	if err := s.b.sink.ask(ctx, order{Do: doReset, Flag: true}, nil); err != nil {
		return 0, err
	}
	return s.mark(ctx)
}
