// Package secret holds credentials so that they cannot be printed by accident.
package secret

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

const redacted = "[redacted]"

// Value is a credential. Every way of printing or marshalling it gives
// "[redacted]"; only [Value.Reveal] gives the text. Its zero value is empty.
//
// In YAML it is either the text itself, or a mapping with one of the keys
// "env" (the name of an environment variable) and "file" (a path; one trailing
// newline is dropped). A file is read again whenever the configuration is.
//
// The text is behind a pointer because fmt calls no methods on unexported fields:
// printing a struct that holds a Value in one shows an address and no more.
type Value struct{ text *string }

// New wraps text.
func New(text string) Value {
	if text == "" {
		return Value{}
	}
	return Value{&text}
}

// Reveal returns the credential itself, for the one place that sends it.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

// Empty reports whether there is no credential.
func (v Value) Empty() bool { return v.text == nil }

// String implements [fmt.Stringer].
func (v Value) String() string {
	if v.Empty() {
		return ""
	}
	return redacted
}

// GoString implements [fmt.GoStringer], so that %#v is safe too.
func (v Value) GoString() string { return fmt.Sprintf("secret.Value(%q)", v.String()) }

// LogValue implements [slog.LogValuer].
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }

// MarshalText implements [encoding.TextMarshaler].
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// MarshalJSON implements [json.Marshaler].
func (v Value) MarshalJSON() ([]byte, error) { return json.Marshal(v.String()) }

// MarshalYAML implements [yaml.Marshaler].
func (v Value) MarshalYAML() (any, error) { return v.String(), nil }

// UnmarshalYAML implements [yaml.Unmarshaler]; see [Value] for the forms.
func (v *Value) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if n.Tag == "!!null" {
			*v = Value{}
			return nil
		}
		*v = New(n.Value)
		return nil
	}
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 {
		return fmt.Errorf("line %d: a secret is a string, or {env: NAME}, or {file: PATH}", n.Line)
	}
	key, val := n.Content[0].Value, n.Content[1].Value
	switch key {
	case "env":
		text, ok := os.LookupEnv(val)
		if !ok {
			return fmt.Errorf("line %d: environment variable %s is not set", n.Line, val)
		}
		*v = New(text)
	case "file":
		b, err := os.ReadFile(val) //nolint:gosec // the path is the operator's own configuration
		if err != nil {
			return fmt.Errorf("line %d: read secret: %w", n.Line, err)
		}
		*v = New(strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"))
	default:
		return fmt.Errorf("line %d: a secret is a string, or {env: NAME}, or {file: PATH}", n.Line)
	}
	return nil
}
