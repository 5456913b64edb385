package strict

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxMerges bounds merge keys inside merge keys, so that one that holds itself
// ends.
const maxMerges = 8

// Decode sets into, a pointer to a struct, from a mapping. Fields are named by
// their yaml tags, those without one are left alone; a key without a value leaves
// its field as it was, so defaults are set before the call. path stands before
// the path of every problem.
//
// A field may be a struct, string, bool, number, slice, map with string keys,
// pointer to one of them, or have its own UnmarshalYAML or UnmarshalText.
func Decode(node *yaml.Node, path string, into any) Problems {
	var d decoder
	d.value(node, path, reflect.ValueOf(into).Elem())
	return d.problems
}

// Pair is one entry of a mapping.
type Pair struct {
	Key   *yaml.Node
	Value *yaml.Node
}

// Mapping returns a mapping's entries in order, with aliases followed and merge
// keys applied. A node that is absent or null has none.
func Mapping(node *yaml.Node, path string) ([]Pair, Problems) {
	var d decoder
	pairs := d.mapping(node, path, 0)
	return pairs, d.problems
}

type decoder struct{ problems Problems }

func (d *decoder) add(n *yaml.Node, path, format string, args ...any) {
	line := 0
	if n != nil {
		line = n.Line
	}
	d.problems.Add(path, line, fmt.Sprintf(format, args...))
}

// resolve follows aliases and takes the document's wrapping off.
func resolve(n *yaml.Node) *yaml.Node {
	for n != nil {
		switch {
		case n.Kind == yaml.AliasNode:
			n = n.Alias
		case n.Kind == yaml.DocumentNode && len(n.Content) == 1:
			n = n.Content[0]
		default:
			return n
		}
	}
	return nil
}

// Null reports whether a node is absent or has no value.
func Null(n *yaml.Node) bool {
	n = resolve(n)
	return n == nil || n.Kind == 0 || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

func (d *decoder) mapping(n *yaml.Node, path string, depth int) []Pair {
	n = resolve(n)
	if Null(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.add(n, path, "must be a mapping of settings")
		return nil
	}
	var pairs, merged []Pair
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		switch {
		case key.ShortTag() == "!!merge" && depth < maxMerges:
			merged = append(merged, d.merge(value, path, depth)...)
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge":
			d.add(key, path, "a key must be a name")
		case seen[key.Value]:
			d.add(key, join(path, key.Value), "is given twice")
		default:
			seen[key.Value] = true
			pairs = append(pairs, Pair{key, value})
		}
	}
	for _, p := range merged {
		if !seen[p.Key.Value] {
			seen[p.Key.Value] = true
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// merge returns the entries of one mapping, or of a list of them, the earlier of
// which wins.
func (d *decoder) merge(n *yaml.Node, path string, depth int) []Pair {
	if n != nil && n.Kind == yaml.SequenceNode {
		var pairs []Pair
		for _, item := range n.Content {
			pairs = append(pairs, d.mapping(item, path, depth+1)...)
		}
		return pairs
	}
	return d.mapping(n, path, depth+1)
}

func (d *decoder) value(n *yaml.Node, path string, v reflect.Value) {
	n = resolve(n)
	if Null(n) {
		return
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if u, ok := reflect.TypeAssert[yaml.Unmarshaler](v.Addr()); ok {
		if err := u.UnmarshalYAML(n); err != nil {
			d.add(n, path, "%s", lineless(err))
		}
		return
	}
	_, text := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr())
	switch kind := v.Kind(); {
	case text:
		d.scalar(n, path, v)
	case kind == reflect.Struct:
		d.structure(n, path, v)
	case kind == reflect.Slice:
		d.slice(n, path, v)
	case kind == reflect.Map:
		d.table(n, path, v)
	default:
		d.scalar(n, path, v)
	}
}

func (d *decoder) structure(n *yaml.Node, path string, v reflect.Value) {
	fields := Fields(v)
	for _, p := range d.mapping(n, path, 0) {
		f, ok := fields[p.Key.Value]
		if !ok {
			d.add(p.Key, join(path, p.Key.Value), "%s", Unknown("setting", p.Key.Value, names(fields)))
			continue
		}
		d.value(p.Value, join(path, p.Key.Value), f)
	}
}

// Fields returns a struct's fields by their names in YAML. Fields of a struct
// that is tagged inline count as its parent's.
func Fields(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case options == "inline" && v.Field(i).Kind() == reflect.Struct:
			maps.Copy(fields, Fields(v.Field(i)))
		case name != "" && name != "-":
			fields[name] = v.Field(i)
		}
	}
	return fields
}

func names(fields map[string]reflect.Value) []string {
	out := make([]string, 0, len(fields))
	for name := range fields {
		out = append(out, name)
	}
	return out
}

func (d *decoder) slice(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.add(n, path, "must be a list")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.value(item, fmt.Sprintf("%s[%d]", path, i), out.Index(i))
	}
	v.Set(out)
}

func (d *decoder) table(n *yaml.Node, path string, v reflect.Value) {
	out := reflect.MakeMap(v.Type())
	for _, p := range d.mapping(n, path, 0) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(p.Value, join(path, p.Key.Value), item)
		out.SetMapIndex(reflect.ValueOf(p.Key.Value).Convert(v.Type().Key()), item)
	}
	v.Set(out)
}

func (d *decoder) scalar(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.ScalarNode {
		d.add(n, path, "must be a single value")
		return
	}
	if err := setText(v, n.Value); err != nil {
		d.add(n, path, "%s", err.Error())
	}
}

var linePrefix = regexp.MustCompile(`^(yaml: )?line \d+: `)

// lineless is an error's text without the line number that stands beside it.
func lineless(err error) string { return linePrefix.ReplaceAllString(err.Error(), "") }
