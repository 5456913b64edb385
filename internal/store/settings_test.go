package store_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestAStalledTransactionEndsNoLaterThanOthersWaitForIt(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), pgtest.URL(t), store.Options{MaxConnections: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	setting := func(name string) time.Duration {
		t.Helper()
		var milliseconds int64
		if err := s.Pool().QueryRow(t.Context(), "select setting::bigint from pg_settings where name = $1", name).Scan(&milliseconds); err != nil {
			t.Fatal(err)
		}
		return time.Duration(milliseconds) * time.Millisecond
	}
	idle, wait := setting("idle_in_transaction_session_timeout"), setting("lock_timeout")
	if idle <= 0 || wait <= 0 || idle > wait {
		t.Errorf("a transaction may stall for %s and a lock is waited for for %s", idle, wait)
	}
}
