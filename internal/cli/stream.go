package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Times of a stream. The service is silent for 15 s at most, and may name another
// pause before the stream is opened again.
const (
	streamSilence = 45 * time.Second
	streamPause   = 2 * time.Second
)

// errNoStream says that what answered knows nothing of streams.
var errNoStream = errors.New("the service does not offer its events as a stream")

// block is one block of a stream of Server-Sent Events (WHATWG HTML, section
// 9.2). One without data only says how far the stream has come.
type block struct {
	id, data string
	retry    time.Duration // what the service asks to wait before another try; 0 for nothing
}

// stream follows the events at a path until ctx ends, the stream breaks or each
// returns an error. last is the id to go on after, empty for none.
func (a *api) stream(ctx context.Context, path string, query url.Values, last string, each func(block) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(streamSilence, cancel)
	defer silence.Stop()
	target := a.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+a.key)
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := (&http.Client{Transport: a.client.Transport}).Do(req) // without a timeout for the whole
	if err != nil {
		return fmt.Errorf("the service cannot be reached: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // given up
	if resp.StatusCode != http.StatusOK {
		answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		return problemOf(resp, answer)
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return errNoStream
	}
	return readBlocks(resp.Body, func(b block) error {
		silence.Reset(streamSilence)
		return each(b)
	})
}

// readBlocks reads to the end of a stream.
func readBlocks(r io.Reader, each func(block) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxAnswer)
	var b block
	for lines.Scan() {
		if lines.Text() == "" {
			if err := each(b); err != nil {
				return err
			}
			b = block{}
			continue
		}
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			b.id = value
		case "retry":
			if ms, err := strconv.Atoi(value); err == nil {
				b.retry = time.Duration(ms) * time.Millisecond
			}
		case "data":
			b.data += value
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	return io.EOF
}

// refused reports whether an error is an answer that another try would not
// change.
func refused(err error) bool {
	if problem, ok := errors.AsType[*apiError](err); ok {
		return problem.Status < http.StatusInternalServerError && problem.Status != http.StatusTooManyRequests
	}
	return errors.Is(err, errNoStream)
}

// changes says when to look at a notification again.
type changes struct {
	happened  chan struct{}
	following atomic.Bool
	cancel    context.CancelFunc
	ended     sync.WaitGroup
}

// followChanges follows a notification's events, if the service offers that,
// until it is stopped or ctx ends.
func followChanges(ctx context.Context, a *api, id string) *changes {
	ctx, cancel := context.WithCancel(ctx)
	c := &changes{happened: make(chan struct{}, 1), cancel: cancel}
	c.ended.Go(func() {
		pause := streamPause
		for ctx.Err() == nil {
			err := a.stream(ctx, "/v1/notifications/"+url.PathEscape(id)+"/events", nil, "", func(b block) error {
				pause = cmp.Or(b.retry, pause)
				// What happened before the stream began is looked up once it has.
				if !c.following.Swap(true) || b.data != "" {
					c.tell()
				}
				return nil
			})
			c.following.Store(false)
			c.tell() // polling takes over
			if refused(err) {
				return // an older service, or a proxy in between
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
	return c
}

func (c *changes) tell() {
	select {
	case c.happened <- struct{}{}:
	default:
	}
}

// await waits until it is time to look again; false means that ctx has ended.
// The pause is kept where the last look failed, since what happens does not help
// then.
func (c *changes) await(ctx context.Context, pause time.Duration, looked bool) bool {
	var happened <-chan struct{}
	if c != nil && looked {
		happened = c.happened
		if c.following.Load() {
			pause = watchCalm
		}
	}
	select {
	case <-ctx.Done():
		return false
	case <-happened:
	case <-time.After(pause):
	}
	return true
}

// stop ends what was started, and waits for that.
func (c *changes) stop() {
	if c != nil {
		c.cancel()
		c.ended.Wait()
	}
}
