package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// changes are limits of a key to be set; those that are nil to be taken back.
type changes = map[store.RouteClass]*resilience.Limit

func TestAKeyHasLimitsOfItsOwnByClass(t *testing.T) {
	t.Parallel()
	d := open(t)
	secret, key, err := d.CreateKey(t.Context(), "default", "ci", []string{"send", "read"}, time.Time{})
	if err != nil || key.Limits != nil {
		t.Fatalf("limits %v, %v", key.Limits, err)
	}
	fast, slow := resilience.Limit{PerSecond: 2000, Burst: 5000}, resilience.Limit{PerSecond: 1.0 / 60, Burst: 1}
	steps := []struct {
		name   string
		change changes
		want   store.KeyLimits
	}{
		{"set", changes{store.ClassWrite: &fast, store.ClassRead: &slow}, store.KeyLimits{store.ClassWrite: fast, store.ClassRead: slow}},
		{"what is not named stays", changes{store.ClassWrite: &slow}, store.KeyLimits{store.ClassWrite: slow, store.ClassRead: slow}},
		{"taken back", changes{store.ClassWrite: nil}, store.KeyLimits{store.ClassRead: slow}},
		{"nothing", changes{}, store.KeyLimits{store.ClassRead: slow}},
	}
	for _, step := range steps {
		got, err := d.LimitKey(t.Context(), "default", key.ID, step.change)
		if err != nil || got.ID != key.ID {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, got.Limits); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	seen, err := d.Authenticate(t.Context(), secret)
	if err != nil || !cmp.Equal(seen.Limits, store.KeyLimits{store.ClassRead: slow}) {
		t.Errorf("whoever authenticates sees %v, %v", seen.Limits, err)
	}
	_, made, _, err := d.RotateKey(t.Context(), "", key.ID, 0, time.Time{})
	if err != nil || !cmp.Equal(made.Limits, seen.Limits) {
		t.Errorf("the key that takes its place has %v, %v", made.Limits, err)
	}
}

func TestLimitsAreNotGivenToKeysOfOthersNorOutOfBounds(t *testing.T) {
	t.Parallel()
	d := open(t)
	_, key, err := d.CreateKey(t.Context(), "default", "", []string{"send"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	good := changes{store.ClassWrite: {PerSecond: 1, Burst: 1}}
	if _, err := d.LimitKey(t.Context(), "other", key.ID, good); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another project's: %v", err)
	}
	if _, err := d.LimitKey(t.Context(), "", uuid.New(), good); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("nobody's: %v", err)
	}
	for _, bad := range []resilience.Limit{{PerSecond: 0, Burst: 1}, {PerSecond: 1, Burst: 0}, {PerSecond: 2e6, Burst: 1}, {PerSecond: 1, Burst: 2e6}} {
		if _, err := d.LimitKey(t.Context(), "", key.ID, changes{store.ClassWrite: &bad}); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestRefusalsAreCountedByKeyAndMinuteAndForgottenAfterADay(t *testing.T) {
	t.Parallel()
	d := open(t)
	ids := map[string]uuid.UUID{}
	for _, name := range []string{"loud", "old", "quiet"} {
		_, key, err := d.CreateKey(t.Context(), "default", name, []string{"send", "read"}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = key.ID
	}
	for range 2 {
		err := d.AddRefusals(t.Context(), []store.Refusals{
			{Key: ids["loud"], Class: store.ClassWrite, Count: 300}, {Key: ids["loud"], Class: store.ClassRead, Count: 2},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, ago := range map[string]string{"loud": "2 hours", "old": "25 hours"} {
		d.exec(`insert into dispatcher.rate_refusals (key_id, class, minute, last_at, count)
			select $1, 'write', date_trunc('minute', t), t, 7 from (select now() - $2::text::interval as t) t`, ids[name], ago)
	}
	if n, err := d.PruneRefusals(t.Context(), 100); n != 1 || err != nil {
		t.Errorf("pruned %d, %v; want 1", n, err)
	}
	keys, err := d.ListKeys(t.Context(), "default")
	if err != nil || len(keys) != 3 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for _, k := range keys {
		var want int64
		if k.Name == "loud" {
			want = 604
		}
		if k.RefusedLastHour != want || k.LastRefusedAt.IsZero() != (want == 0) || want > 0 && time.Since(k.LastRefusedAt) > time.Minute {
			t.Errorf("%s: %d refused within the hour, the last at %v", k.Name, k.RefusedLastHour, k.LastRefusedAt)
		}
	}
}

func TestLiveNodesAreThoseThatBeat(t *testing.T) {
	t.Parallel()
	d := open(t)
	for i, ago := range []string{"-1 hour", "-2 hours", "1 minute"} {
		d.exec(`insert into dispatcher.nodes (id, lock_key, name, started_at, beat_at) values ($1, $2, 'n', now(), now() - $3::text::interval)`,
			uuid.New(), i, ago)
	}
	if n, err := d.LiveNodes(t.Context()); n != 2 || err != nil {
		t.Errorf("%d live nodes, %v; want 2", n, err)
	}
}
