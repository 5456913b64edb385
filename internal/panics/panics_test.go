package panics_test

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

// watched is a guard with what it has logged and counted.
func watched() (g *panics.Guard, log *strings.Builder, counted *[]panics.Part) {
	log, counted = &strings.Builder{}, &[]panics.Part{}
	return panics.New(slog.New(slog.NewTextHandler(log, nil)), func(p panics.Part) { *counted = append(*counted, p) }), log, counted
}

func TestAPanicIsToldByItsPlaceAndNotByItsWords(t *testing.T) {
	t.Parallel()
	g, log, counted := watched()
	err := g.Do(t.Context(), panics.Request, "answer a row", func() error { panic(errors.New("the secret of +14155550199")) })
	if !errors.Is(err, panics.ErrCaught) || !slices.Equal(*counted, []panics.Part{panics.Request}) {
		t.Errorf("%v, counted %v", err, *counted)
	}
	for _, want := range []string{`part=request`, `task="answer a row"`, `kind=*errors.errorString`, "panics_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log: %s", want, log)
		}
	}
	if said := err.Error() + log.String(); strings.Contains(said, "secret") || strings.Contains(said, "555") {
		t.Errorf("the panic's words are told: %s", said)
	}
}

func TestWhatDoesNotPanicIsLeftAlone(t *testing.T) {
	t.Parallel()
	g, log, counted := watched()
	wrong := errors.New("wrong")
	for _, want := range []error{nil, wrong} {
		if err := g.Do(t.Context(), panics.Background, "task", func() error { return want }); err != want { //nolint:errorlint // the very same
			t.Errorf("%v, want %v", err, want)
		}
	}
	if log.Len() > 0 || len(*counted) > 0 {
		t.Errorf("logged %q, counted %v", log, *counted)
	}
}

func TestATaskIsBegunAnewAfterAPauseUntilItReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _, counted := watched()
		var at []time.Duration
		begun := time.Now()
		g.Keep(t.Context(), "task", func(context.Context) {
			if at = append(at, time.Since(begun)); len(at) < 3 {
				panic("no")
			}
		})
		if want := []time.Duration{0, panics.Pause, 2 * panics.Pause}; !slices.Equal(at, want) || len(*counted) != 2 {
			t.Errorf("begun at %v, %d panics counted", at, len(*counted))
		}
	})
}

func TestAPauseEndsWithTheTasksContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _, _ := watched()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun, runs := time.Now(), 0
		g.Keep(ctx, "task", func(context.Context) { runs++; panic("no") })
		if took := time.Since(begun); took != time.Second || runs != 1 {
			t.Errorf("%d runs in %v, want one, and an end after a second", runs, took)
		}
	})
}

func TestNobodyNeedsToBeTold(t *testing.T) {
	t.Parallel()
	err := panics.New(nil, nil).Do(t.Context(), panics.Delivery, "task", func() error { panic("no") })
	if !errors.Is(err, panics.ErrCaught) {
		t.Errorf("%v", err)
	}
}
