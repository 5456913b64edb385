package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/panics"
)

func TestATaskThatPanicsGoesOnAfterAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		log := slog.New(slog.NewTextHandler(&said, nil))
		d := &Dispatcher{log: log, guard: panics.New(log, nil)}
		ctx, cancel := context.WithCancel(t.Context())
		var at []time.Duration
		begun := time.Now()
		d.every(ctx, 100*time.Millisecond, "count", func(context.Context) error {
			if at = append(at, time.Since(begun)); len(at) == 1 {
				panic("the secret of somebody")
			}
			cancel()
			return nil
		})
		if len(at) != 2 || at[1] < panics.Pause {
			t.Errorf("rounds at %v", at)
		}
		if got := said.String(); !strings.Contains(got, "task=count") || !strings.Contains(got, "panics_test.go") || strings.Contains(got, "secret") {
			t.Errorf("logged %s", got)
		}
	})
}

func TestAFlushThatPanicsFailsForItsOffenderAlone(t *testing.T) {
	t.Parallel()
	r := recorder{fail: func(items []int) error {
		if slices.Contains(items, 3) {
			panic("no")
		}
		return nil
	}}
	d := &Dispatcher{guard: panics.New(nil, nil)}
	inBubble(t, batcher[int, int]{flush: guarded(d, "test", r.flush), max: 10, linger: time.Second}, 1, func(t *testing.T, b *batcher[int, int], _ func()) {
		results, errs := handIn(t, b, 1, 2, 3, 4)
		for i, err := range errs {
			if bad := i == 2; bad != errors.Is(err, panics.ErrCaught) || !bad && results[i] != 2*(i+1) {
				t.Errorf("item %d: %d, %v", i+1, results[i], err)
			}
		}
	})
}
