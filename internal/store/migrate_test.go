package store_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestMigrationsMayBeStartedByManyAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	before, err := store.Status(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if before.Current() || before.River != 0 || before.Schema != 0 || before.Wanted < 1 {
		t.Errorf("status of an empty database is %+v", before)
	}
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = store.Migrate(t.Context(), url) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("migrator %d: %v", i, err)
		}
	}
	after, err := store.Status(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if !after.Current() || after.River != after.RiverWanted || after.Schema != after.Wanted {
		t.Errorf("status after migrating is %+v", after)
	}
	d := openAt(t, url)
	const catalog = `select string_agg(format('%s %s %s', relname, relfilenode, reltuples), e'\n' order by relname)
		from pg_class where relnamespace = 'dispatcher'::regnamespace`
	was := one[string](d, catalog)
	if err := store.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(was, one[string](d, catalog)); diff != "" {
		t.Errorf("migrating a current database changed it:\n%s", diff)
	}
	if n := d.count("select count(*) from dispatcher.schema_migrations where version_id = $1", after.Wanted); n != 1 {
		t.Errorf("the newest migration is noted %d times", n)
	}
	for _, index := range []string{"river_job_args_index", "river_job_metadata_index"} {
		if one[bool](d, "select to_regclass('dispatcher.' || $1) is not null", index) {
			t.Errorf("%s costs every job and nobody reads it", index)
		}
	}
}

func TestErrorsDoNotRepeatTheDatabaseURL(t *testing.T) {
	t.Parallel()
	const url = "postgres://user:hunter2@[bad"
	_, open := store.Open(t.Context(), url, store.Options{})
	_, status := store.Status(t.Context(), url)
	for what, err := range map[string]error{"open": open, "status": status, "migrate": store.Migrate(t.Context(), url)} {
		if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "user") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
