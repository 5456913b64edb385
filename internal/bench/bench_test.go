//go:build unix

package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/bench"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
)

// TestMain is the parts too, since bench starts its own program again.
func TestMain(m *testing.M) {
	if os.Getenv(bench.PartVariable) != "" {
		if err := bench.ServePart(context.Background(), os.Stdin, os.Stdout, os.Stderr, "test"); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// logger is a test's log.
type logger struct{ t *testing.T }

// Write implements [io.Writer].
func (l logger) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// One scenario of each kind; CI measures all of them with the program itself.
func TestScenariosMeasureAndVerifyThemselves(t *testing.T) {
	kinds := []string{"river", "river-tuned", "webhook", "accept-batch", "latency"}
	report, err := bench.Run(t.Context(), bench.Options{
		DatabaseURL: pgtest.Empty(t), Small: true, Only: kinds, Log: logger{t}, Version: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(report.Lines), len(kinds); got != want {
		t.Errorf("%d scenarios were measured, want all %d", got, want)
	}
	for _, l := range report.Lines {
		if l.Error != "" || len(l.Samples) == 0 || l.Median <= 0 || l.Min > l.Median || l.Median > l.Max {
			t.Errorf("%s: %+v", l.Name, l)
		}
		if l.Unit == "/s" && (l.Ratio <= 0 || l.Tuned <= 0) {
			t.Errorf("%s is not compared with River: %+v", l.Name, l)
		}
		for _, s := range l.Samples {
			if s.Cost != nil && (s.Cost.Service <= 0 || s.Cost.WAL <= 0) {
				t.Errorf("%s cost nothing: %+v", l.Name, s.Cost)
			}
		}
	}
	var table bytes.Buffer
	if err := report.Print(&table); err != nil {
		t.Fatal(err)
	}
	for _, name := range kinds {
		if !strings.Contains(table.String(), name) {
			t.Errorf("%s is not in the table:\n%s", name, table.String())
		}
	}
	if _, err := json.Marshal(report); err != nil {
		t.Error(err)
	}
}

func TestAnUnknownScenarioIsRefused(t *testing.T) {
	_, err := bench.Run(t.Context(), bench.Options{Only: []string{"nonesuch"}})
	if err == nil || !strings.Contains(err.Error(), "nonesuch") {
		t.Errorf("error %v", err)
	}
}
