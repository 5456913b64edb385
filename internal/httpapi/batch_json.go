package httpapi

import (
	"bytes"
	"iter"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// lenient reads JSON whose faults are somebody else's to find.
func lenient(raw []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// members are the members of a JSON object that is valid, in order.
func members(object []byte) iter.Seq2[string, jsontext.Value] {
	return func(yield func(string, jsontext.Value) bool) {
		d := lenient(object)
		if _, err := d.ReadToken(); err != nil {
			return
		}
		for d.PeekKind() == jsontext.KindString {
			name, err := d.ReadToken()
			if err != nil {
				return
			}
			key := name.String()
			value, err := d.ReadValue()
			if err != nil || !yield(key, slices.Clone(value)) {
				return
			}
		}
	}
}

// elements are the elements of a JSON array that is valid.
func elements(array []byte) iter.Seq[jsontext.Value] {
	return func(yield func(jsontext.Value) bool) {
		d := lenient(array)
		if _, err := d.ReadToken(); err != nil {
			return
		}
		for d.PeekKind() != jsontext.KindEndArray {
			value, err := d.ReadValue()
			if err != nil || !yield(slices.Clone(value)) {
				return
			}
		}
	}
}

// batchRow is a row as it was sent, or nothing of one that is too long.
type batchRow struct {
	raw     []byte
	tooLong bool
}

// parts cuts rows into those that are worked on together. The cuts depend on the
// rows alone, so that a batch that is repeated has the same ones.
func parts(rows []batchRow) iter.Seq[[]batchRow] {
	return func(yield func([]batchRow) bool) {
		for len(rows) > 0 {
			size, n := 0, 0
			for n < len(rows) && n < partRows && size < partBytes {
				size += len(rows[n].raw)
				n++
			}
			if !yield(rows[:n]) {
				return
			}
			rows = rows[n:]
		}
	}
}
