package httpapi

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
)

// The schema of a request stands beside the parser, which does not use it. What
// the parser takes must fit the schema; what it refuses for its members, types
// and words must not.
func TestSchemaAndParserAgree(t *testing.T) {
	text, err := os.ReadFile("../notify/testdata/requests.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Name     string
		Body     any
		Problems []string
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	doc := New(Config{}).huma.OpenAPI()
	registry := doc.Components.Schemas
	schema := doc.Paths["/v1/notifications"].Post.RequestBody.Content[jsonType].Schema
	fits, not := 0, 0
	for _, row := range rows {
		if strings.Contains(row.Name, "null") || strings.Contains(row.Name, "takes priority") && strings.HasSuffix(row.Name, " ") {
			continue // null and empty words for absent ones are a courtesy that the schema keeps to itself
		}
		if strings.Contains(row.Name, "another case") {
			continue // huma's validator, which we use here only, does not see the case of a name
		}
		result := &huma.ValidateResult{}
		huma.Validate(registry, schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, row.Body, result)
		switch {
		case len(row.Problems) == 0 && len(result.Errors) > 0:
			t.Errorf("%s: the parser takes it, the schema says %v", row.Name, result.Errors)
		case len(row.Problems) == 0:
			fits++
		case len(result.Errors) == 0 && structural(row.Problems):
			t.Errorf("%s: the parser says %v, the schema takes it", row.Name, row.Problems)
		default:
			not++
		}
	}
	if fits < 30 || not < 30 {
		t.Errorf("%d bodies fit and %d do not, which is no corpus", fits, not)
	}
}

// structural reports whether one of the problems is one that a schema can tell.
func structural(problems []string) bool {
	for _, p := range problems {
		_, code, _ := strings.Cut(p, " ")
		if code == "unknown_member" || code == "type" || code == "choice" {
			return true
		}
	}
	return false
}
