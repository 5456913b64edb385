package resilience

import (
	"context"
	"errors"
	"slices"
	"time"
)

// maxAsks bounds the keys of one exchange with the source.
const maxAsks = 500

var errGrants = errors.New("the source did not answer every ask")

// Run asks the source for what is wanted until ctx ends. One exchange is under
// way at a time, and what is wanted meanwhile goes into the next one: each key
// is asked for once, and a busy node pays for many keys together. It may run once at
// a time.
func (l *Limiter) Run(ctx context.Context) {
	if l.cfg.Source == nil {
		<-ctx.Done()
		return
	}
	l.mu.Lock()
	l.running = true
	l.mu.Unlock()
	defer l.stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		for {
			asked, err := l.refill(ctx)
			if ctx.Err() != nil {
				return
			}
			if asked && l.cfg.Report != nil && failing != (err != nil) {
				failing = err != nil
				l.cfg.Report(err)
			}
			if !asked || err != nil {
				break
			}
		}
	}
}

func (l *Limiter) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = false
	l.dismiss()
}

// refill makes one exchange for all that is pending and reports whether there
// was anything.
func (l *Limiter) refill(ctx context.Context) (asked bool, err error) {
	sent := time.Now()
	entries, asks := l.collect(sent)
	if len(asks) == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	// Whatever comes of it, or if it panics: who waits for an answer gets one.
	var grants []Grant
	err = errGrants
	defer func() { l.settle(entries, asks, grants, err, sent, time.Now()) }()
	grants, err = l.cfg.Source.TakeTokens(ctx, asks)
	if err == nil && len(grants) != len(asks) {
		err = errGrants
	}
	return true, err
}

// collect turns what is pending into asks.
func (l *Limiter) collect(now time.Time) ([]*leased, []Ask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries, asks := make([]*leased, 0, len(l.pending)), make([]Ask, 0, len(l.pending))
	done := 0
	for _, e := range l.pending {
		if len(asks) == maxAsks {
			break
		}
		done++
		if e.forgotten {
			e.release() // its key may be pending anew
			continue
		}
		want := e.lease.Want(e.waiting+e.polled, now)
		entries = append(entries, e)
		asks = append(asks, Ask{l.cfg.Prefix + e.key, e.limit, want, min(max(e.least, 1), want)})
		e.polled, e.least = 0, 0
	}
	l.pending = slices.Delete(l.pending, 0, done)
	return entries, asks
}

func (l *Limiter) settle(entries []*leased, asks []Ask, grants []Grant, err error, sent, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Statements++
	l.stats.Asks += int64(len(asks))
	for i, e := range entries {
		// Tokens of a limit that was changed meanwhile are of no use.
		if err == nil && e.limit == asks[i].Limit {
			e.lease.Settle(asks[i], grants[i], sent, now)
		}
		e.release()
	}
	if err != nil {
		l.stats.Failures++
		l.rested = now.Add(l.cfg.Rest)
		l.dismiss()
	}
}

// dismiss sends away all who wait: no ask will be made for them.
func (l *Limiter) dismiss() {
	for _, e := range l.pending {
		e.release()
	}
	l.pending = slices.Delete(l.pending, 0, len(l.pending))
}

// ask has the source asked for what a cost lacks. Where an ask is under way, its
// answer is waited for first: it may bring enough.
func (l *Limiter) ask(e *leased, cost int) {
	if missing := e.lease.Missing(cost); e.least == 0 || missing < e.least {
		e.least = missing
	}
	if e.asking {
		return
	}
	e.asking = true
	l.pending = append(l.pending, e)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// wait returns what is closed when the ask is answered.
func (e *leased) wait() <-chan struct{} {
	if e.answered == nil {
		e.answered = make(chan struct{})
	}
	return e.answered
}

func (e *leased) release() {
	e.asking, e.polled = false, 0 // who still lacks something comes back
	if e.answered != nil {
		close(e.answered)
		e.answered = nil
	}
}
