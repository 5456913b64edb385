package pgserver_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest/pgserver"
)

func TestServerOfTheEnvironmentIsUsedAndLeftAlone(t *testing.T) {
	t.Setenv(pgserver.ChoiceVariable, "")
	t.Setenv(pgserver.URLVariable, "postgres://elsewhere/db")
	s, err := pgserver.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.URL, "postgres://elsewhere/db"; got != want {
		t.Errorf("URL = %q, want %q", got, want)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("Stop = %v", err)
	}
}

func TestUnknownChoiceIsAnError(t *testing.T) {
	t.Setenv(pgserver.ChoiceVariable, "dokcer")
	if _, err := pgserver.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "must be docker") {
		t.Errorf("Start = %v, want an error that says what is allowed", err)
	}
}

func TestServerOfThisMachineAnswersUntilItIsStopped(t *testing.T) {
	t.Setenv(pgserver.ChoiceVariable, "")
	t.Setenv(pgserver.URLVariable, "")
	s, err := pgserver.Start(t.Context())
	if errors.Is(err, pgserver.ErrNone) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	conn, err := pgx.Connect(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE may_create"); err != nil {
		t.Errorf("create a database: %v", err)
	}
	_ = conn.Close(t.Context())
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Errorf("Stop = %v", err)
		}
	}
	if conn, err := pgx.Connect(t.Context(), s.URL); err == nil {
		_ = conn.Close(t.Context())
		t.Error("the server answers after Stop")
	}
}
