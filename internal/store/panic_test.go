package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A row that nobody foresaw panics whenever it is read, and is read again.
func TestNoConnectionIsLostToAReaderThatPanics(t *testing.T) {
	t.Parallel()
	d := open(t)
	for range d.Pool().Config().MaxConns {
		b := &pgx.Batch{}
		b.Queue("select 1").Query(func(pgx.Rows) error { panic("no") })
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = d.SendAlone(t.Context(), b)
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := d.Ready(ctx); err != nil {
		t.Errorf("afterwards no connection can be had: %v", err)
	}
}
