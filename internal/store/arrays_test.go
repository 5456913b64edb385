package store_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// What pgx writes by itself is the measure.
func TestColumnsGoToTheDatabaseAsPgxWouldWriteThem(t *testing.T) {
	t.Parallel()
	d := open(t)
	plain, err := pgx.Connect(t.Context(), d.url)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close(t.Context()) //nolint:errcheck // the database goes with it
	text, empty, small, large := `a "quoted", text`, "", int16(-7), int64(math.MinInt64)
	at := time.Date(1999, 12, 31, 23, 59, 59, 123456789, time.FixedZone("", 3600))
	for _, c := range []struct {
		as    string
		value any
	}{
		{"bool[]", []bool{true, false}},
		{"bytea[]", [][]byte{{0, 255}, {}, nil}},
		{"int2[]", []int16{0, 1, math.MaxInt16, math.MinInt16}},
		{"int2[]", []*int16{nil, &small}},
		{"int4[]", []int32{0, -1, math.MaxInt32}},
		{"int8[]", []int64{0, -1, math.MaxInt64}},
		{"int8[]", []*int64{&large, nil}},
		{"int8[]", []int16{1, 2}}, // not the element's own type
		{"json[]", [][]byte{[]byte(`{"a": [1, "ü"]}`), nil, []byte("null")}},
		{"text[]", []string{"", "null", "ü", text}},
		{"text[]", []*string{&text, nil, &empty}},
		{"timestamptz[]", []time.Time{at, time.Unix(0, 0), time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC), {}}},
		{"timestamptz[]", []*time.Time{nil, &at}},
		{"uuid[]", []uuid.UUID{uuid.Nil, uuid.Max}},
		{"text[]", []string{}},
		{"text[]", []string(nil)},
	} {
		sql := "select coalesce(($1::" + c.as + ")::text, 'NULL') || ' from ' || coalesce(array_lower($1, 1), 0)"
		var got, want string
		if err := d.Pool().QueryRow(t.Context(), sql, c.value).Scan(&got); err != nil {
			t.Fatalf("%T as %s: %v", c.value, c.as, err)
		}
		if err := plain.QueryRow(t.Context(), sql, c.value).Scan(&want); err != nil {
			t.Fatalf("%T as %s by pgx: %v", c.value, c.as, err)
		}
		if got != want {
			t.Errorf("%T as %s came as %s, want %s", c.value, c.as, got, want)
		}
	}
}
