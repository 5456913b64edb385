package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// recorder is a flush that remembers what it was given and doubles each item.
type recorder struct {
	mu      sync.Mutex
	flushes [][]int
	fail    func(items []int) error
}

func (r *recorder) flush(_ context.Context, items []int) ([]int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushes = append(r.flushes, slices.Clone(items))
	if r.fail != nil {
		if err := r.fail(items); err != nil {
			return nil, err
		}
	}
	out := make([]int, len(items))
	for i, item := range items {
		out[i] = 2 * item
	}
	return out, nil
}

var (
	errBadRow = &pgconn.PgError{Code: "22021"}
	errOdd    = &pgconn.PgError{Code: "XX000"}
	errAway   = errors.New("connection reset")
)

// inBubble runs do with a batcher that b describes, in a bubble of fake time, and
// stops it at the end.
func inBubble(t *testing.T, b batcher[int, int], flushers int, do func(t *testing.T, b *batcher[int, int], stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ready := newBatcher(b)
		ready.start(ctx, flushers)
		do(t, ready, cancel)
		cancel()
		ready.wait()
	})
}

// handIn gives items to b at the same time, in order, and returns the results.
func handIn(t *testing.T, b *batcher[int, int], items ...int) ([]int, []error) {
	t.Helper()
	results, errs := make([]int, len(items)), make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { results[i], errs[i] = b.do(t.Context(), item) })
		synctest.Wait() // it is in the queue, or the flusher has it
	}
	wg.Wait()
	return results, errs
}

func TestBatcherWritesWhatWaitsTogetherAndInOrder(t *testing.T) {
	t.Parallel()
	var r recorder
	inBubble(t, batcher[int, int]{flush: r.flush, max: 3, linger: time.Second}, 1, func(t *testing.T, b *batcher[int, int], _ func()) {
		results, errs := handIn(t, b, 1, 2, 3, 4)
		if !slices.Equal(results, []int{2, 4, 6, 8}) || errors.Join(errs...) != nil {
			t.Errorf("results %v, errors %v", results, errs)
		}
	})
	if got := fmt.Sprint(r.flushes); got != "[[1 2 3] [4]]" {
		t.Errorf("flushes %s", got)
	}
}

func TestBatcherDoesNotLingerForAFullFlush(t *testing.T) {
	t.Parallel()
	var r recorder
	inBubble(t, batcher[int, int]{flush: r.flush, max: 2, linger: time.Hour}, 1, func(t *testing.T, b *batcher[int, int], _ func()) {
		begun := time.Now()
		handIn(t, b, 1, 2)
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("waited %v", waited)
		}
	})
}

func TestBatcherLingersOnlyWhileItIsBusy(t *testing.T) {
	t.Parallel()
	r := recorder{fail: func([]int) error { time.Sleep(time.Minute); return nil }} // so that company comes
	inBubble(t, batcher[int, int]{flush: r.flush, max: 9, linger: time.Second, busy: 3}, 1, func(t *testing.T, b *batcher[int, int], _ func()) {
		for i, tt := range []struct {
			items []int
			want  time.Duration
		}{
			{[]int{1}, time.Minute},
			{[]int{2, 3, 4, 5}, 2 * time.Minute}, // one alone, then three together
			{[]int{6}, time.Minute + time.Second},
			{[]int{7}, time.Minute},
		} {
			begun := time.Now()
			handIn(t, b, tt.items...)
			if took := time.Since(begun); took != tt.want {
				t.Errorf("%d took %v, want %v", i, took, tt.want)
			}
		}
	})
}

func TestBatcherSplitsUntilTheOffenderStandsAlone(t *testing.T) {
	t.Parallel()
	for _, err := range []error{errBadRow, errOdd} {
		r := recorder{fail: func(items []int) error {
			if slices.Contains(items, 5) {
				return err
			}
			return nil
		}}
		inBubble(t, batcher[int, int]{flush: r.flush, max: 10, linger: time.Second}, 1, func(t *testing.T, b *batcher[int, int], _ func()) {
			results, errs := handIn(t, b, 1, 2, 3, 4, 5, 6, 7)
			for i := range results {
				if bad := i == 4; bad != errors.Is(errs[i], err) || !bad && results[i] != 2*(i+1) {
					t.Errorf("%v: item %d: %d, %v", err, i+1, results[i], errs[i])
				}
			}
		})
	}
}

func TestBatcherTriesAgainWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	away := 20
	r := recorder{}
	r.fail = func([]int) error {
		if away--; away >= 0 {
			return errAway
		}
		return nil
	}
	inBubble(t, batcher[int, int]{flush: r.flush, max: 10, linger: time.Second}, 1, func(t *testing.T, b *batcher[int, int], _ func()) {
		if results, errs := handIn(t, b, 1, 2); results[0] != 2 || results[1] != 4 || errors.Join(errs...) != nil {
			t.Errorf("results %v, errors %v", results, errs)
		}
	})
	for _, items := range r.flushes {
		if !slices.Equal(items, []int{1, 2}) {
			t.Errorf("tried again with %v", items)
		}
	}
}

func TestBatcherGivesUpAfterItsPatience(t *testing.T) {
	t.Parallel()
	r := recorder{fail: func([]int) error { return errAway }}
	inBubble(t, batcher[int, int]{flush: r.flush, max: 10, patience: 5 * time.Second}, 1, func(t *testing.T, b *batcher[int, int], _ func()) {
		begun := time.Now()
		_, err := b.do(t.Context(), 1)
		if took := time.Since(begun); !errors.Is(err, errAway) || took < 5*time.Second || took > 7*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestBatcherWithoutPatienceGivesUpOnlyAfterTheEnd(t *testing.T) {
	t.Parallel()
	r := recorder{fail: func([]int) error { return errAway }}
	inBubble(t, batcher[int, int]{flush: r.flush, max: 10}, 1, func(t *testing.T, b *batcher[int, int], stop func()) {
		begun := time.Now()
		time.AfterFunc(time.Hour, stop)
		_, err := b.do(t.Context(), 1)
		if took := time.Since(begun); !errors.Is(err, errAway) || took < time.Hour || took > time.Hour+2*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestBatcherNeverWritesTheSameThingTwiceInOneFlush(t *testing.T) {
	t.Parallel()
	r := recorder{}
	inBubble(t, batcher[int, int]{
		flush: r.flush, max: 10, linger: time.Second, same: func(i int) any { return i / 10 },
	}, 1, func(t *testing.T, b *batcher[int, int], _ func()) {
		results, errs := handIn(t, b, 10, 20, 11, 12, 30)
		if !slices.Equal(results, []int{20, 40, 22, 24, 60}) || errors.Join(errs...) != nil {
			t.Errorf("results %v, errors %v", results, errs)
		}
	})
	if got := fmt.Sprint(r.flushes); got != "[[10 20 30] [11] [12]]" {
		t.Errorf("flushes %s: the later ones must come after, in order", got)
	}
}

func TestBatcherAtTheEnd(t *testing.T) {
	t.Parallel()
	t.Run("writes what was handed in before", func(t *testing.T) {
		t.Parallel()
		r := recorder{}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			b := newBatcher(batcher[int, int]{flush: r.flush, max: 2})
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Go(func() {
					if got, err := b.do(t.Context(), i); got != 2*i || err != nil {
						t.Errorf("item %d: %d, %v", i, got, err)
					}
				})
			}
			synctest.Wait() // both are in the queue, and nobody has begun
			cancel()
			b.start(ctx, 1)
			wg.Wait()
			b.wait()
		})
	})
	t.Run("answers at once who comes after", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newStopped(t)
			for range 100 { // the queue has room for one, and select chooses by chance
				if _, err := b.do(t.Context(), 1); !errors.Is(err, errStopped) {
					t.Fatalf("error %v", err)
				}
			}
		})
	})
	t.Run("lets go of a caller whose context ends", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBatcher(batcher[int, int]{flush: new(recorder).flush, max: 1}) // not started
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for range 2 { // once waiting for the result, once for a place in the queue
				if _, err := b.do(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v", err)
				}
			}
		})
	})
}

// newStopped returns a batcher that has stopped.
func newStopped(t *testing.T) *batcher[int, int] {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := newBatcher(batcher[int, int]{flush: new(recorder).flush, max: 1})
	b.start(ctx, 1)
	b.wait()
	return b
}

func TestBatcherGivesUpAFlushThatHangs(t *testing.T) {
	t.Parallel()
	tries := 0
	hang := func(ctx context.Context, items []int) ([]int, error) {
		if tries++; tries == 1 {
			<-ctx.Done() // a connection that was cut without a word
			return nil, ctx.Err()
		}
		return items, nil
	}
	inBubble(t, batcher[int, int]{flush: hang, max: 1}, 1, func(t *testing.T, b *batcher[int, int], _ func()) {
		begun := time.Now()
		if got, err := b.do(t.Context(), 7); got != 7 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
		if took := time.Since(begun); took < flushLimit || took > flushLimit+time.Second {
			t.Errorf("took %v", took)
		}
	})
}
