package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestErrorsAreSortedByWhatCanBeDone(t *testing.T) {
	t.Parallel()
	state := func(code string) error { return &pgconn.PgError{Code: code} }
	for _, c := range []struct {
		name string
		err  error
		want store.Class
	}{
		{"no error", nil, store.Other},
		{"text with NUL", state("22021"), store.BadRow},
		{"check violation", state("23514"), store.BadRow},
		{"connection lost", state("08006"), store.Transient},
		{"deadlock", state("40P01"), store.Transient},
		{"too many connections", state("53300"), store.Transient},
		{"lock timeout", state("55P03"), store.Transient},
		{"shutdown", state("57P01"), store.Transient},
		{"starting up", state("57P03"), store.Transient},
		{"input/output", state("58030"), store.Transient},
		{"a demoted server", state("25006"), store.Transient},
		{"idle in transaction for too long", state("25P03"), store.Transient},
		{"in a transaction for too long", state("25P04"), store.Transient},
		{"inside a failed transaction", state("25P02"), store.Other},
		{"no such table", state("42P01"), store.Other},
		{"no code", state(""), store.Other},
		{"short code", state("2"), store.Other},
		{"wrapped", fmt.Errorf("flush: %w", state("23505")), store.BadRow},
		{"canceled", context.Canceled, store.Other},
		{"deadline", fmt.Errorf("x: %w", context.DeadlineExceeded), store.Transient},
		{"connection closed", pgconn.ErrConnClosed, store.Transient},
		{"end of file", fmt.Errorf("receive: %w", io.ErrUnexpectedEOF), store.Transient},
		{"reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, store.Transient},
		{"a column of another type", pgx.ScanArgError{Err: errors.New("no")}, store.Other},
		{"not found", fmt.Errorf("get: %w", store.ErrNotFound), store.Other},
		{"mismatch", store.ErrIdempotencyMismatch, store.Other},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := store.Classify(c.err); got != c.want {
				t.Errorf("class of %v is %d, want %d", c.err, got, c.want)
			}
		})
	}
}

func TestWhatKeepsAConnectionFromBeingMadeIsTransient(t *testing.T) {
	t.Parallel()
	d := open(t)
	cfg := d.Pool().Config().ConnConfig.Copy()
	refused, absent := cfg.Copy(), cfg.Copy()
	refused.Host, refused.Port, refused.Fallbacks = "127.0.0.1", 1, nil
	absent.Database, absent.Fallbacks = "there_is_no_such_database", nil
	for name, c := range map[string]*pgx.ConnConfig{"refused": refused, "absent": absent} {
		_, err := pgx.ConnectConfig(t.Context(), c)
		if err == nil {
			t.Fatalf("%s: connected", name)
		}
		if got := store.Classify(err); got != store.Transient {
			t.Errorf("%s: class of %v is %d", name, err, got)
		}
	}
}

func TestABrokenConnectionIsTransient(t *testing.T) {
	t.Parallel()
	d := open(t)
	delivery := d.accept(row())[0]
	r := after0(delivery, store.After{Status: notify.Failed, Final: true})
	r.Join = true
	_, err := d.Record(t.Context(), []store.Result{r}, func(store.Record, []store.DeliveryID) store.Joined {
		// The flush is in mid-transaction now.
		d.exec(`select pg_terminate_backend(pid) from pg_stat_activity
			where state = 'idle in transaction' and datname = current_database()`)
		return store.Joined{Events: []store.Event{{At: now(), Whole: true, Project: "default", Type: "x"}}}
	})
	if err == nil || store.Classify(err) != store.Transient {
		t.Fatalf("class of %v is %d", err, store.Classify(err))
	}
	if d.delivery(delivery.DeliveryID).Turn != 0 {
		t.Error("half a flush was kept")
	}
	if fates := d.record(r); fates[0] != store.Written {
		t.Error("the flush could not be repeated")
	}
}

// A connection whose other end is gone must not hold up a flush for as long as
// TCP takes to notice.
func TestATransactionThatHangsIsGivenUpAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	d := open(t)
	delivery := d.accept(row())[0]
	d.exec(`create function dispatcher.hang() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return null; end $$`)
	d.exec(`create trigger hang after update on dispatcher.deliveries for each statement execute function dispatcher.hang()`)
	d.SetLimit(100 * time.Millisecond)
	_, _, claim := d.Claim(t.Context(), d.node, []store.Claim{claimOf(delivery)}, true)
	_, record := d.Record(t.Context(), []store.Result{after0(delivery, store.After{Status: notify.Failed, Final: true})}, nil)
	for what, err := range map[string]error{"claim": claim, "record": record} {
		if err == nil || store.Classify(err) != store.Transient {
			t.Errorf("%s: class of %v is %d", what, err, store.Classify(err))
		}
	}
	d.SetLimit(time.Minute)
	d.exec("drop trigger hang on dispatcher.deliveries")
	d.claim(delivery)
}
