package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// isBatch reports whether a file holds a notification in each line, by its name.
func isBatch(file string) bool {
	return slices.Contains([]string{".ndjson", ".jsonl"}, strings.ToLower(filepath.Ext(file)))
}

// batch sends a file of many notifications and prints what became of each row.
func (s sendFlags) batch(ctx context.Context, e *env, key string) error {
	rows, err := os.ReadFile(*s.message.file)
	if err != nil {
		return fmt.Errorf("read notifications: %w", err)
	}
	a, err := s.api.open(e)
	if err != nil {
		return err
	}
	header := http.Header{"Idempotency-Key": {key}, "Content-Type": {"application/x-ndjson"}}
	answer, err := a.call(ctx, http.MethodPost, "/v1/notifications/batch", header, rows)
	if err != nil {
		return repeatable(err, key)
	}
	accepted, results := 0, 0
	for line := range bytes.Lines(answer) {
		var r batchRow
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("the answer cannot be understood: %w", err)
		}
		results++
		if r.Status == http.StatusAccepted {
			accepted++
		}
		if *s.asJSON {
			_, err = e.stdout.Write(line)
		} else {
			_, err = io.WriteString(e.stdout, r.String()+"\n")
		}
		if err != nil {
			return err
		}
	}
	printTo(e.stderr, "%d of %s accepted\n", accepted, plural(results, "row"))
	if accepted < results {
		return errFailed
	}
	return nil
}

// batchRow is the result of a row.
type batchRow struct {
	Index  int       `json:"index"`
	Status int       `json:"status"`
	ID     string    `json:"id"`
	Error  *apiError `json:"error"`
}

func (r batchRow) String() string {
	if r.Error == nil {
		return fmt.Sprintf("%d %s", r.Index, r.ID)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d refused (%s)", r.Index, r.Error.Code)
	for _, f := range r.Error.Errors {
		fmt.Fprintf(&text, " %s: %s", first(f.Parameter, f.Pointer, "/"), f.Detail)
	}
	return text.String()
}
