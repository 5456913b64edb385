package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// printTo prints for a person. A reader who has gone away cannot be told of it.
func printTo(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

// table prints rows in columns.
func table(w io.Writer, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		_, _ = io.WriteString(t, strings.Join(row, "\t")+"\n")
	}
	_ = t.Flush()
}

// writeJSON prints v for a script: indented, with its keys in order.
func writeJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// writeRaw prints JSON that a server answered, indented.
func writeRaw(w io.Writer, raw []byte) error {
	v := jsontext.Value(raw)
	if err := v.Indent(); err != nil {
		return fmt.Errorf("the answer is no JSON: %w", err)
	}
	_, err := w.Write(append(v, '\n'))
	return err
}
