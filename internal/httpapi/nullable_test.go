package httpapi_test

import (
	"regexp"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
)

// A generated client refuses null where the document does not allow it.
func TestMembersThatAreSaidToBeNullMayBeNull(t *testing.T) {
	t.Parallel()
	text, err := httpapi.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	said, found := regexp.MustCompile(`\bnull (for|while|where|without|otherwise|before|when)\b`), 0
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			members, _ := v["properties"].(map[string]any)
			for name, member := range members {
				m, ok := member.(map[string]any)
				if text, _ := m["description"].(string); !ok || !said.MatchString(text) {
					continue
				}
				found++
				if !allowsNull(m) {
					t.Errorf("%s/%s is said to be null at times, and its schema does not allow it", at, name)
				}
			}
			for name, below := range v {
				walk(at+"/"+name, below)
			}
		case []any:
			for _, below := range v {
				walk(at, below)
			}
		}
	}
	walk("", doc)
	if found < 15 {
		t.Errorf("only %d such members were found", found)
	}
}

func allowsNull(schema map[string]any) bool {
	if schema["type"] == "null" {
		return true
	}
	if types, ok := schema["type"].([]any); ok && slices.Contains(types, any("null")) {
		return true
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		of, _ := schema[key].([]any)
		for _, s := range of {
			if m, ok := s.(map[string]any); ok && allowsNull(m) {
				return true
			}
		}
	}
	return false
}
