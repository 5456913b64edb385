package sandbox

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	callbackSenders  = 8
	callbackTimeout  = 5 * time.Second
	maxCallbacks     = 100_000 // messages whose callbacks are waiting
	rememberedCalled = 1_000
)

// Callback is one status callback that was sent, or that could not be.
type Callback struct {
	Provider  string    `json:"provider"`
	MessageID string    `json:"message_id"`
	Status    string    `json:"status"`
	SentAt    time.Time `json:"sent_at"`
	// HTTPStatus is what the receiver answered, 0 for nothing.
	HTTPStatus int    `json:"http_status,omitzero"`
	Error      string `json:"error,omitzero"`
}

// tale is one message's callbacks: those still to tell, in order, each delay
// after the one before.
type tale struct {
	due                 time.Time
	delay               time.Duration
	provider, messageID string
	rest                []stage
	request             func(context.Context, stage) (*http.Request, error)
	overrides           overrides
	failures            int // of the first of rest, so far
}

type taleHeap []*tale

func (h taleHeap) Len() int           { return len(h) }
func (h taleHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h taleHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *taleHeap) Push(x any)        { *h = append(*h, x.(*tale)) }
func (h *taleHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

// callbackQueue sends callbacks when they are due. A message's own come one
// after the other; those of different messages overlap.
type callbackQueue struct {
	client *http.Client
	now    func() time.Time // what is recorded; being due is real time

	mu     sync.Mutex
	tales  taleHeap
	called []Callback

	wake   chan struct{}
	stop   chan struct{}
	closed sync.Once
	wg     sync.WaitGroup
}

func newCallbackQueue(now func() time.Time) *callbackQueue {
	return &callbackQueue{
		client: &http.Client{
			Timeout:       callbackTimeout,
			Transport:     &http.Transport{MaxIdleConnsPerHost: callbackSenders, IdleConnTimeout: 30 * time.Second},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		now:  now,
		wake: make(chan struct{}, 1),
		stop: make(chan struct{}),
	}
}

func (q *callbackQueue) start(ctx context.Context) {
	for range callbackSenders {
		q.wg.Go(func() { q.work(ctx) })
	}
}

// close ends the senders; calls under way are broken off.
func (q *callbackQueue) close() {
	q.closed.Do(func() { close(q.stop) })
	q.wg.Wait()
	q.client.CloseIdleConnections()
}

// push queues a message's callbacks. Where too many wait, they are lost, as they
// can be with the vendors.
func (q *callbackQueue) push(t *tale) {
	q.mu.Lock()
	full := len(q.tales) >= maxCallbacks
	if !full {
		heap.Push(&q.tales, t)
	}
	q.mu.Unlock()
	if full {
		q.note(t, t.rest[0], 0, "queue is full")
		return
	}
	q.signal()
}

func (q *callbackQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *callbackQueue) work(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q.wg.Go(func() {
		select {
		case <-q.stop:
			cancel()
		case <-ctx.Done():
		}
	})
	for ctx.Err() == nil {
		t, wait := q.pop()
		if t == nil {
			q.sleep(ctx, wait)
			continue
		}
		if again := q.send(ctx, t, t.rest[0]); again {
			t.failures++
			t.due = time.Now().Add(retryPause << (t.failures - 1))
			q.push(t)
			continue
		}
		t.failures = 0
		if t.rest = t.rest[1:]; len(t.rest) > 0 {
			t.due = t.due.Add(t.delay)
			q.push(t)
		}
	}
}

// pop takes what is due, or says how long nothing will be.
func (q *callbackQueue) pop() (*tale, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.tales) == 0 {
		return nil, time.Hour
	}
	if wait := time.Until(q.tales[0].due); wait > 0 {
		return nil, wait
	}
	t := heap.Pop(&q.tales).(*tale)
	if len(q.tales) > 0 {
		q.signal() // another sender looks at what is next
	}
	return t, 0
}

func (q *callbackQueue) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-q.wake:
	case <-t.C:
	}
}

// send makes a callback once and reports whether it is to be made again.
func (q *callbackQueue) send(ctx context.Context, t *tale, st stage) (again bool) {
	status, err := q.post(ctx, t, st)
	text := ""
	if err != nil {
		text = withoutURL(err)
	}
	q.note(t, st, status, text)
	return t.overrides.again(t.failures+1, status, err)
}

// withoutURL is the text of an error without the URL around it, which holds a
// token.
func withoutURL(err error) string {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	return err.Error()
}

// isConnect reports whether no connection could be made.
func isConnect(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func (q *callbackQueue) post(ctx context.Context, t *tale, st stage) (int, error) {
	req, err := t.request(ctx, st)
	if err != nil {
		return 0, fmt.Errorf("make callback: %w", err)
	}
	resp, err := q.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was to be read
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	return resp.StatusCode, nil
}

func (q *callbackQueue) note(t *tale, st stage, status int, text string) {
	c := Callback{
		Provider: t.provider, MessageID: t.messageID, Status: st.status,
		SentAt: q.now().UTC(), HTTPStatus: status, Error: text,
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.called) >= 2*rememberedCalled {
		q.called = slices.Delete(q.called, 0, rememberedCalled)
	}
	q.called = append(q.called, c)
}

// Callbacks returns at least the last thousand callbacks, oldest first.
func (s *Server) Callbacks() []Callback {
	s.callbacks.mu.Lock()
	defer s.callbacks.mu.Unlock()
	return slices.Clone(s.callbacks.called)
}
