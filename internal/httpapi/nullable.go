package httpapi

import (
	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
)

// nullable is an object of an answer that is null where there is none. The document
// takes a pointer to a struct for an object that is always there.
type nullable[T any] struct{ value *T }

// MarshalJSON implements json.Marshaler.
func (n nullable[T]) MarshalJSON() ([]byte, error) { return json.Marshal(n.value) }

// Schema implements huma.SchemaProvider.
func (nullable[T]) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{schemaOf[T](r), {Type: "null"}}}
}
