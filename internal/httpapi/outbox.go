package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/panics"
)

// outboxSize bounds what an outbox holds, in bytes. The results of the largest
// batch fit, unless most of its rows are wrong.
const outboxSize = 4 << 20

// outbox writes an answer while its request is still being read. Many callers
// send all of a body before they read any answer; written directly, a long one
// would fill the connection's buffers and both sides would wait for each other.
type outbox struct {
	w       http.ResponseWriter
	control *http.ResponseController
	done    chan struct{}

	mu     sync.Mutex
	moved  *sync.Cond
	held   bytes.Buffer
	closed bool
	broken bool
}

func newOutbox(ctx context.Context, guard *panics.Guard, w http.ResponseWriter, control *http.ResponseController) *outbox {
	o := &outbox{w: w, control: control, done: make(chan struct{})}
	o.moved = sync.NewCond(&o.mu)
	go func() {
		defer close(o.done)
		if guard.Do(ctx, panics.Request, "write an answer", o.run) != nil {
			o.fail()
		}
	}()
	return o
}

// write takes p, when there is room.
func (o *outbox) write(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.held.Len() > 0 && o.held.Len()+len(p) > outboxSize && !o.broken {
		o.moved.Wait()
	}
	o.held.Write(p)
	o.moved.Broadcast()
}

// close waits until everything is written, or the caller is known to have gone.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.moved.Broadcast()
	o.mu.Unlock()
	<-o.done
}

// fail lets go of what is written from now on: nobody gets it.
func (o *outbox) fail() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = true
	o.moved.Broadcast()
}

func (o *outbox) run() error {
	var piece []byte
	for {
		o.mu.Lock()
		for o.held.Len() == 0 && !o.closed {
			o.moved.Wait()
		}
		piece = append(piece[:0], o.held.Bytes()...)
		o.held.Reset()
		o.moved.Broadcast()
		o.mu.Unlock()
		if len(piece) == 0 {
			return nil
		}
		if o.broken { // only this goroutine sets it
			continue
		}
		_ = o.control.SetWriteDeadline(time.Now().Add(partPatience)) // in a test there is none to set
		_, err := o.w.Write(piece)
		if err == nil {
			err = o.control.Flush()
		}
		if err != nil {
			o.fail()
		}
	}
}
