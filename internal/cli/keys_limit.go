package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// limitView is a limit as it is printed.
type limitView struct {
	PerSecond float64 `json:"per_second"`
	Burst     int     `json:"burst"`
}

func viewLimits(l store.KeyLimits) map[store.RouteClass]limitView {
	out := map[store.RouteClass]limitView{}
	for class, limit := range l {
		out[class] = limitView(limit)
	}
	return out
}

// limitFlag is a limit as it is given: nil for the configured one.
type limitFlag struct {
	given bool
	limit *resilience.Limit
}

// String implements [flag.Value].
func (l *limitFlag) String() string {
	if l.limit == nil {
		return ""
	}
	return limitText(*l.limit)
}

var units = map[string]float64{"s": 1, "m": 60, "h": 3600}

// Set implements [flag.Value]. Without a burst it is what comes back in ten
// seconds, at least 1.
func (l *limitFlag) Set(text string) error {
	l.given, l.limit = true, nil
	if text == "default" {
		return nil
	}
	wrong := errors.New(`must be a rate such as 100/s or 30/m, with a burst as in 100/s,2000, or "default"`)
	rate, burst, hasBurst := strings.Cut(text, ",")
	number, unit, _ := strings.Cut(rate, "/")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || units[unit] == 0 {
		return wrong
	}
	limit := resilience.Limit{PerSecond: n / units[unit]}
	limit.Burst = int(min(max(math.Ceil(10*limit.PerSecond), 1), resilience.MaxBurst))
	if hasBurst {
		if limit.Burst, err = strconv.Atoi(burst); err != nil {
			return wrong
		}
	}
	l.limit = &limit
	return limit.Check()
}

// limitText is a limit as it can be given, in the largest unit in which it is at
// least 1.
func limitText(l resilience.Limit) string {
	unit := "h"
	for _, u := range []string{"s", "m"} {
		if l.PerSecond*units[u] >= 1 {
			unit = u
			break
		}
	}
	return strconv.FormatFloat(l.PerSecond*units[unit], 'g', 6, 64) + "/" + unit + "," + strconv.Itoa(l.Burst)
}

func limitsText(l store.KeyLimits) string {
	var out []string
	for _, class := range slices.Sorted(maps.Keys(l)) {
		out = append(out, string(class)+" "+limitText(l[class]))
	}
	if len(out) == 0 {
		return "default"
	}
	return strings.Join(out, "; ")
}

// refusedText says what limits refused to a key.
func refusedText(k store.APIKey) string {
	if k.LastRefusedAt.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%d in 1h, last %s", k.RefusedLastHour, k.LastRefusedAt.UTC().Format("2006-01-02T15:04:05Z"))
}

func keysLimit(f *flag.FlagSet) action {
	database := newDatabaseFlags(f)
	limits := map[store.RouteClass]*limitFlag{}
	for class, what := range map[store.RouteClass]string{
		store.ClassWrite: "what scope send allows, each row of a batch counted", store.ClassRead: "reading", store.ClassAdmin: "administration",
	} {
		limits[class] = &limitFlag{}
		f.Var(limits[class], string(class), "the `limit` of "+what)
	}
	return func(ctx context.Context, e *env, args []string) error {
		if len(args) != 1 {
			return usagef("keys limit takes the id of one key; see dispatcher keys list")
		}
		id, err := uuid.Parse(args[0])
		if err != nil {
			return usagef("%q is not the id of a key; see dispatcher keys list", args[0])
		}
		change := map[store.RouteClass]*resilience.Limit{}
		for class, l := range limits {
			if l.given {
				change[class] = l.limit
			}
		}
		if len(change) == 0 {
			return usagef("keys limit needs one of --write, --read, --admin")
		}
		return withStore(ctx, e, database, func(s *store.Store) error {
			key, err := s.LimitKey(ctx, "", id, change)
			if errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("there is no key %s", id)
			}
			if err == nil {
				printTo(e.stdout, "limits of %s: %s\n", id, limitsText(key.Limits))
			}
			return err
		})
	}
}
