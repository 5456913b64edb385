package store_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

func TestIDsGoToTheDatabaseAndComeBack(t *testing.T) {
	t.Parallel()
	d := open(t)
	id, other := uuid.New(), uuid.New()
	var one uuid.UUID
	var text string
	var null, some *uuid.UUID
	var many []uuid.UUID
	err := d.Pool().QueryRow(t.Context(), "select $1::uuid, $1::uuid::text, $2::uuid, $3::uuid, $4::uuid[]",
		id, (*uuid.UUID)(nil), &other, []uuid.UUID{other, id, uuid.Nil}).Scan(&one, &text, &null, &some, &many)
	if err != nil {
		t.Fatal(err)
	}
	if one != id || text != id.String() || null != nil || some == nil || *some != other || !slices.Equal(many, []uuid.UUID{other, id, uuid.Nil}) {
		t.Errorf("%v, %s, %v, %v and %v came back", one, text, null, some, many)
	}
	// The simple protocol has texts only.
	if err := d.Pool().QueryRow(t.Context(), "select $1::uuid", pgx.QueryExecModeSimpleProtocol, id).Scan(&one); err != nil || one != id {
		t.Errorf("as text %v came back, %v", one, err)
	}
	if err := d.Pool().QueryRow(t.Context(), "select null::uuid").Scan(&one); err == nil {
		t.Error("NULL went into an id")
	}
}

func BenchmarkIDs(b *testing.B) {
	d := open(b)
	ids := make([]uuid.UUID, 500)
	for i := range ids {
		ids[i] = uuid.New()
	}
	b.ReportAllocs()
	for b.Loop() {
		rows, err := d.Pool().Query(b.Context(), "select id from unnest($1::uuid[]) as id", ids)
		if err != nil {
			b.Fatal(err)
		}
		if got, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]); err != nil || len(got) != len(ids) {
			b.Fatal(len(got), err)
		}
	}
}
