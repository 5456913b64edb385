package doctest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Rest is the sign for what a document leaves out.
const Rest = "…"

// Match compares what a document shows with what was printed. JSON is compared by
// its shape, and other text line by line. In both, … stands for whatever is there:
// in a line and in a string for some text, alone in a line for any lines, in JSON
// also for a value, for further members and for further elements. An instant, a
// UUID and a duration with its unit stand for any other.
func Match(shown, printed string) error {
	shown, printed = strings.TrimSpace(shown), strings.TrimSpace(printed)
	if !strings.HasPrefix(shown, "{") && !strings.HasPrefix(shown, "[") {
		return matchLines(shown, printed)
	}
	want, err := decodeAll(quoteRests(shown))
	if err != nil {
		return fmt.Errorf("the document shows what begins like JSON: %w", err)
	}
	got, err := decodeAll(printed)
	if err != nil {
		return fmt.Errorf("it printed no JSON: %w", err)
	}
	if len(want) != len(got) {
		return fmt.Errorf("it printed %d values, want %d", len(got), len(want))
	}
	for i := range want {
		if err := matchJSON(want[i], got[i], ""); err != nil {
			return err
		}
	}
	return nil
}

// decodeAll reads values that follow one another.
func decodeAll(text string) ([]any, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	var all []any
	for {
		var v any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
}

// quoteRests makes JSON of a text in which … stands for values and members.
func quoteRests(text string) string {
	var b strings.Builder
	var open []rune // the brackets around
	name, quoted, escaped := false, false, false
	for _, r := range text {
		if quoted {
			quoted = escaped || r != '"'
			escaped = r == '\\' && !escaped
			b.WriteRune(r)
			continue
		}
		switch r {
		case '"':
			quoted, name = true, false
		case '{', '[':
			open, name = append(open, r), r == '{'
		case '}', ']':
			open = open[:max(len(open)-1, 0)]
		case ',':
			name = len(open) > 0 && open[len(open)-1] == '{'
		}
		switch {
		case string(r) == Rest && name:
			b.WriteString(`"…": "…"`)
		case string(r) == Rest:
			b.WriteString(`"…"`)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func matchJSON(want, got any, at string) error {
	if want == Rest {
		return nil
	}
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is %v, want an object", at, got)
		}
		_, more := want[Rest]
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if _, ok := want[name]; !ok && !more {
				return fmt.Errorf("%s/%s is there, and is not shown", at, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if name == Rest {
				continue
			}
			if _, ok := got[name]; !ok {
				return fmt.Errorf("%s/%s is missing", at, name)
			}
			if err := matchJSON(want[name], got[name], at+"/"+name); err != nil {
				return err
			}
		}
		return nil
	case []any:
		got, ok := got.([]any)
		if !ok {
			return fmt.Errorf("%s is %v, want an array", at, got)
		}
		if n := len(want); n > 0 && want[n-1] == Rest && len(got) >= n-1 {
			want, got = want[:n-1], got[:n-1]
		}
		if len(want) != len(got) {
			return fmt.Errorf("%s has %d elements, want %d", at, len(got), len(want))
		}
		for i := range want {
			if err := matchJSON(want[i], got[i], fmt.Sprintf("%s/%d", at, i)); err != nil {
				return err
			}
		}
		return nil
	case string:
		if got, ok := got.(string); ok && fits(want, got) {
			return nil
		}
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Errorf("%s is %v, want %v", at, got, want)
	}
	return nil
}

// kinds are texts that stand for any of their kind. The first that fits decides.
var kinds = []string{
	`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z`,
	`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,
	`\b\d\d:\d\d:\d\d\b`,
	`\b[0-9.]+ (?:ms|s)\b`,
}

var special = regexp.MustCompile(Rest + `|` + strings.Join(kinds, "|"))

// fits reports whether a text is what a document shows, … and kinds aside.
func fits(want, got string) bool {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	last := 0
	for _, at := range special.FindAllStringIndex(want, -1) {
		b.WriteString(regexp.QuoteMeta(want[last:at[0]]))
		last = at[1]
		text := want[at[0]:at[1]]
		kind := `.*?`
		for _, k := range kinds {
			if text != Rest && regexp.MustCompile(`\A(?:`+k+`)\z`).MatchString(text) {
				kind = `(?:` + k + `)`
				break
			}
		}
		b.WriteString(kind)
	}
	b.WriteString(regexp.QuoteMeta(want[last:]) + `\z`)
	return regexp.MustCompile(b.String()).MatchString(got)
}

// matchLines compares texts, runs of spaces aside.
func matchLines(shown, printed string) error {
	want, got := squeeze(shown), squeeze(printed)
	// reach[j]: the lines of want so far fit the first j lines of got.
	reach := make([]bool, len(got)+1)
	reach[0] = true
	for i, line := range want {
		next := make([]bool, len(got)+1)
		for j := range reach {
			if line == Rest {
				next[j] = reach[j] || j > 0 && next[j-1]
			} else if j > 0 {
				next[j] = reach[j-1] && fits(line, got[j-1])
			}
		}
		if !slices.Contains(next, true) {
			at := slices.Index(reach, true)
			return fmt.Errorf("line %d, %q, does not follow in %q", i+1, line, strings.Join(got[at:], "\n"))
		}
		reach = next
	}
	if !reach[len(got)] {
		return fmt.Errorf("more was printed than is shown: %q", strings.Join(got[slices.Index(reach, true):], "\n"))
	}
	return nil
}

// squeeze returns the lines that are not empty, with single spaces.
func squeeze(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
