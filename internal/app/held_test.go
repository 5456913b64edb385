package app

import (
	"strconv"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestAHeldScopeIsNamedOnceAndAgainAfterAnHour(t *testing.T) {
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	w := &heldWatch{}
	check := func(what string, want int, scopes ...string) {
		t.Helper()
		var held []store.Hold
		for _, s := range scopes {
			held = append(held, store.Hold{Scope: s})
		}
		if got := w.news(held, at); len(got) != want {
			t.Errorf("%s: %d are news, want %d", what, len(got), want)
		}
	}
	check("the first time", 2, "a", "b")
	at = at.Add(time.Minute)
	check("a minute later", 0, "a", "b")
	check("with another one", 1, "a", "b", "c")
	at = at.Add(time.Hour - time.Minute)
	check("an hour later", 2, "a", "b", "c")
	check("a is well again", 0, "b", "c")
	check("and held once more", 1, "a", "b", "c")
}

func TestManyHeldScopesAreNamedAFewAtATime(t *testing.T) {
	w, now := &heldWatch{}, time.Now()
	var held []store.Hold
	for i := range heldLines + 5 {
		held = append(held, store.Hold{Scope: strconv.Itoa(i)})
	}
	for _, want := range []int{heldLines, 5, 0} {
		if got := w.news(held, now); len(got) != want {
			t.Errorf("%d are news, want %d", len(got), want)
		}
	}
}

func TestHeldDeliveriesAreCountedInOrdersOfMagnitude(t *testing.T) {
	for n, want := range map[int]string{1: "less than 10", 10: "10 or more", 999: "100 or more", 1000: "1000 or more", heldCount: "10000 or more"} {
		if got := bucket(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
