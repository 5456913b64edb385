// Package panics keeps a fault in one place from taking the whole process down,
// and with it every call under way, on every node that meets the same row. What
// runs on a goroutine of its own runs through a [Guard]; what panics is logged,
// counted, and over for that one round.
//
// A guard cannot undo what was half done: code that it runs gives locks back, and
// what it has taken off a list, in a deferred call.
package panics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// Part is what a panic happened in, for a metric.
type Part string

// The parts.
const (
	Delivery   Part = "delivery"   // on a delivery's way, the provider's adapter included
	Request    Part = "request"    // while a request was answered
	Background Part = "background" // in what goes on beside the two
)

// Parts returns all of them.
func Parts() []Part { return []Part{Delivery, Request, Background} }

// ErrCaught is what became of something that panicked.
var ErrCaught = errors.New("panicked")

// Pause is how long a background task rests after a panic, lest one that panics
// at once fills the log.
const Pause = 5 * time.Second

// Guard catches panics. It is made by [New] and safe for concurrent use.
type Guard struct {
	log   *slog.Logger
	count func(Part)
}

// New returns a guard that writes to log and calls count for every panic; nil
// discards.
func New(log *slog.Logger, count func(Part)) *Guard {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if count == nil {
		count = func(Part) {}
	}
	return &Guard{log: log, count: count}
}

// Caught logs and counts what a deferred function has recovered: where it happened
// and of what kind it is. What a panic says is not logged, since it may hold
// anything. what is one of a few fixed texts, such as a task's name.
func (g *Guard) Caught(ctx context.Context, part Part, what string, recovered any, attrs ...slog.Attr) {
	g.count(part)
	attrs = append(attrs, slog.String("part", string(part)), slog.String("task", what), slog.String("kind", fmt.Sprintf("%T", recovered)),
		slog.String("stack", string(debug.Stack())))
	g.log.LogAttrs(ctx, slog.LevelError, "panic", attrs...)
}

// Do returns what do returns, and [ErrCaught] where it panics.
func (g *Guard) Do(ctx context.Context, part Part, what string, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			g.Caught(ctx, part, what, p)
			err = ErrCaught
		}
	}()
	return do()
}

// Round is Do for one round of a background task, which rests for [Pause] after a
// panic, or until ctx ends.
func (g *Guard) Round(ctx context.Context, task string, do func(context.Context) error) error {
	err := g.Do(ctx, Background, task, func() error { return do(ctx) })
	if errors.Is(err, ErrCaught) {
		rest := time.NewTimer(Pause)
		defer rest.Stop()
		select {
		case <-ctx.Done():
		case <-rest.C:
		}
	}
	return err
}

// Keep runs a background task that works until ctx ends, and begins it anew after
// each panic. It returns when the task does.
func (g *Guard) Keep(ctx context.Context, task string, run func(context.Context)) {
	for {
		err := g.Round(ctx, task, func(ctx context.Context) error { run(ctx); return nil })
		if err == nil || ctx.Err() != nil {
			return
		}
	}
}
