package httpapi

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Of a struct that another one embeds, the document has the members only where its
// name is exported; JSON has them always.
func TestEverySchemaHasTheMembersOfItsType(t *testing.T) {
	t.Parallel()
	registry := New(Config{}).huma.OpenAPI().Components.Schemas
	checked := 0
	for name, schema := range registry.Map() {
		typ := registry.TypeFromRef("#/components/schemas/" + name)
		if typ == nil || typ.Kind() != reflect.Struct || len(schema.Properties) == 0 {
			continue
		}
		checked++
		want := slices.Sorted(maps.Keys(jsonMembers(typ)))
		got := slices.Sorted(maps.Keys(schema.Properties))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-type +schema):\n%s", name, diff)
		}
	}
	if checked < 40 {
		t.Errorf("only %d schemas were checked", checked)
	}
}

func jsonMembers(typ reflect.Type) map[string]bool {
	members := map[string]bool{}
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			maps.Copy(members, jsonMembers(f.Type))
		case f.IsExported() && name != "-" && name != "":
			members[name] = true
		}
	}
	return members
}
