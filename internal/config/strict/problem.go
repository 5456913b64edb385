// Package strict decodes YAML into structs and reports everything that is wrong
// at once, each with its path in the document. It never repeats a value that it
// could not use: a secret may stand in the wrong place.
package strict

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Path string // such as "channels.sms.accounts[0].timeout", or a variable's name
	Line int    // in the document, from 1; 0 for none
	Text string // what is allowed, without the value
}

// String gives "path (line n): text".
func (p Problem) String() string {
	switch {
	case p.Path == "" && p.Line == 0:
		return p.Text
	case p.Path == "":
		return fmt.Sprintf("line %d: %s", p.Line, p.Text)
	case p.Line == 0:
		return p.Path + ": " + p.Text
	}
	return fmt.Sprintf("%s (line %d): %s", p.Path, p.Line, p.Text)
}

// Problems is every problem found.
type Problems []Problem

// Error is problems as an error, a line for each.
type Error struct{ Problems Problems }

// Error implements error.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns the problems as an [*Error], nil when there are none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return &Error{ps}
}

// From returns the problems of an error: of an [*Error] its own, of another its
// text, of nil none.
func From(err error) Problems {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Problems
	}
	return Problems{{Text: err.Error()}}
}

// Add appends a problem, unless its path has one already: what follows from it is
// not worth reading.
func (ps *Problems) Add(path string, line int, text string) {
	if path != "" && slices.ContainsFunc(*ps, func(p Problem) bool { return p.Path == path }) {
		return
	}
	*ps = append(*ps, Problem{Path: path, Line: line, Text: text})
}

// join appends a key to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Unknown says that name is none of known, and which one may be meant.
func Unknown(what, name string, known []string) string {
	text := "unknown " + what
	if near := nearest(name, known); near != "" {
		return text + "; did you mean " + near + "?"
	}
	if len(known) > 0 && len(known) <= 12 {
		known = slices.Sorted(slices.Values(known))
		return text + "; it is one of " + strings.Join(known, ", ")
	}
	return text
}

// nearest returns the known name that is at most two edits and a third of its
// letters away, or nothing.
func nearest(name string, known []string) string {
	best, bestDistance := "", 3
	for _, k := range known {
		if d := distance(name, k); d < bestDistance && d*3 <= len(k) {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
