package stream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/stream"
)

// cluster is some processes on one database, any of which may be started anew.
type cluster struct {
	ctx    context.Context //nolint:containedctx // of the test
	source stream.Source
	config stream.Config
	mu     sync.Mutex
	nodes  []*server
}

func (c *cluster) node(i int) *server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i%len(c.nodes)]
}

func (c *cluster) restart(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i %= len(c.nodes)
	c.nodes[i].stop()
	c.nodes[i] = serve(c.ctx, c.source, c.config)
}

func (c *cluster) stop() {
	for _, n := range c.nodes {
		n.stop()
	}
}

// visit is one connection of a follower: to which process, after how many events
// it breaks, and whether the process then goes with it.
type visit struct {
	node, events int
	restart      bool
}

// follow reads as a client does: it keeps the position of the last event it has
// seen, or of a heartbeat, and comes back with it. It ends when it has come to
// the end of what was written once the writers are done.
func (c *cluster) follow(f store.EventFilter, visits []visit, written <-chan struct{}, end func() int64) (seen []int64, err error) {
	for i := 0; ; i++ {
		v := visits[i%len(visits)]
		sub, err := c.node(v.node).Subscribe(c.ctx, f, stream.AtPosition)
		if errors.Is(err, stream.ErrClosed) {
			continue
		}
		if err != nil {
			return seen, err
		}
		for left := v.events; left > 0; {
			done := closed(written)
			events, err := sub.Next(c.ctx, time.Millisecond)
			if errors.Is(err, stream.ErrClosed) || errors.Is(err, stream.ErrSlow) {
				break
			}
			if err != nil {
				sub.Close()
				return seen, err
			}
			for _, e := range events[:min(left, len(events))] {
				seen = append(seen, e.Seq)
				f.After = e.Seq
			}
			left -= len(events)
			if len(events) == 0 {
				f.After = sub.Position()
				if done && f.After >= end() {
					sub.Close()
					return seen, nil
				}
			}
		}
		sub.Close()
		if v.restart {
			c.restart(v.node)
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Whoever reads with a cursor misses nothing and sees nothing twice, while many
// write at once, wherever the reader stops and resumes, on whatever process.
func TestFollowersMissNothingAndSeeNothingTwice(t *testing.T) {
	t.Parallel()
	d := open(t)
	var total int
	rapid.Check(t, func(rt *rapid.T) {
		base := d.newest(t)
		c := &cluster{ctx: t.Context(), source: d, config: stream.Config{
			Interval: time.Millisecond,
			Ring:     rapid.SampledFrom([]int{1, 4, 4096}).Draw(rt, "ring"),
			Buffer:   rapid.SampledFrom([]int{1, 3, 1024}).Draw(rt, "buffer"),
		}}
		for range rapid.IntRange(1, 2).Draw(rt, "nodes") {
			c.nodes = append(c.nodes, serve(c.ctx, d, c.config))
		}
		defer c.stop()
		flushes := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(1, 4), 1, 5), 2, 5).Draw(rt, "flushes of each writer")
		visits := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) visit {
			return visit{rapid.IntRange(0, 1).Draw(rt, "node"), rapid.IntRange(1, 12).Draw(rt, "events"), rapid.IntRange(0, 3).Draw(rt, "restart") == 0}
		}), 1, 4)

		first, err := d.accept(t.Context(), "acme", 1)
		if err != nil {
			rt.Fatal(err)
		}
		filters := []store.EventFilter{
			{Project: "acme", After: base},
			{Project: "acme", After: base},
			{Project: "other", After: base},
			{Project: "acme", Notification: first[0].Notification, After: base},
		}
		written := make(chan struct{})
		var writers, readers sync.WaitGroup
		failures := make(chan error, len(flushes)+len(filters))
		for i, sizes := range flushes {
			writers.Go(func() { failures <- d.write(t.Context(), []string{"acme", "other"}[i%2], sizes) })
		}
		writers.Go(func() { _ = d.finish(t.Context(), first) })
		seen := make([][]int64, len(filters))
		for i, f := range filters {
			plan := visits.Draw(rt, fmt.Sprint("visits ", i))
			readers.Go(func() {
				var err error
				seen[i], err = c.follow(f, plan, written, func() int64 { return d.newest(t) })
				failures <- err
			})
		}
		writers.Wait()
		close(written)
		readers.Wait()
		close(failures)
		for err := range failures {
			if err != nil {
				rt.Fatal(err)
			}
		}
		for i, f := range filters {
			want := d.positions(t, f)
			total += len(want)
			if diff := cmp.Diff(want, seen[i]); diff != "" {
				rt.Fatalf("follower %d of %+v (-table +seen):\n%s", i, f, diff)
			}
		}
	})
	if total == 0 {
		t.Error("nobody had anything to read")
	}
}

// write flushes notifications of these sizes and then that they were sent.
func (d *db) write(ctx context.Context, project string, sizes []int) error {
	for _, size := range sizes {
		started, err := d.accept(ctx, project, size)
		if err != nil {
			return err
		}
		if err := d.finish(ctx, started); err != nil {
			return err
		}
	}
	return nil
}
