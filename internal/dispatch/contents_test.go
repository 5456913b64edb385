package dispatch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLargeContentsOfANodeAreBoundedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newContents()
		var mu sync.Mutex
		held, most := 0, 0
		add := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			held += n
			most = max(most, held)
		}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				const size = 10 << 20
				leave, err := c.take(t.Context(), size)
				if err != nil {
					t.Error(err)
					return
				}
				add(size)
				time.Sleep(time.Second)
				add(-size)
				leave()
			})
		}
		wg.Wait()
		if most > maxContents || most < maxContents/2 {
			t.Errorf("%d bytes at once", most)
		}
		leave, err := c.take(t.Context(), 2*maxContents)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.take(ctx, 1); err == nil {
			t.Error("there was room beside one that is larger than all of it")
		}
		leave()
		if _, err := c.take(t.Context(), 1); err != nil {
			t.Error(err)
		}
	})
}
