//go:build unix

package localpg_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/localpg"
)

// asParent makes the test binary a program that starts a cluster, prints its URL
// and waits to be killed. Its value is the folder, or "throwaway".
const asParent = "LOCALPG_TEST_PARENT"

func TestMain(m *testing.M) {
	if folder := os.Getenv(asParent); folder != "" {
		os.Exit(beParent(folder))
	}
	os.Exit(m.Run())
}

func beParent(folder string) int {
	if folder == "throwaway" {
		folder = ""
	}
	c, err := localpg.Start(context.Background(), localpg.Config{Folder: folder})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := fmt.Fprintln(os.Stdout, c.URL("postgres")); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // Until the test goes, at the latest.
	return 0
}

// start starts a cluster that the test's end stops.
func start(t *testing.T, cfg localpg.Config) *localpg.Cluster {
	t.Helper()
	c, err := localpg.Start(t.Context(), cfg)
	if errors.Is(err, localpg.ErrNoPrograms) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	return c
}

func stop(t *testing.T, c *localpg.Cluster) {
	t.Helper()
	if err := c.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// query returns the one text value of a statement.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var value string
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// execute runs statements.
func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
