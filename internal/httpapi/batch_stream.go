package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// partPatience is how long a part of a streamed batch may take to arrive, and a
// piece of its answer to be taken. It is shorter than a batch's lease.
const partPatience = 30 * time.Second

// linesFingerprint stands for the body of a streamed batch, which is not known
// when it begins: its parts have fingerprints of their own.
var linesFingerprint = sha256.Sum256([]byte(linesType))

// streamBatch answers a batch of lines while it arrives. It returns a problem
// where no part of the answer has been written yet.
func (a *API) streamBatch(ctx context.Context, w http.ResponseWriter, r *http.Request, trace string) *Problem {
	if r.Header.Get("Content-Encoding") != "" {
		return newProblem(http.StatusUnsupportedMediaType, CodeMediaType, "The body must not be compressed.")
	}
	control := http.NewResponseController(w)
	// Answering before the body has ended is what a caller asks for here.
	_ = control.EnableFullDuplex()
	rows := &lineReader{from: bufio.NewReaderSize(r.Body, 64<<10)}
	read := func() ([]batchRow, *Problem) {
		_ = control.SetReadDeadline(time.Now().Add(partPatience)) // in a test there is none to set
		return rows.part()
	}
	given, p := rows.defaults()
	if p != nil {
		return p
	}
	part, p := read()
	switch {
	case p != nil:
		return p
	case len(part) == 0:
		return bodyProblem([]notify.Problem{{Code: notify.CodeRequired, Detail: "must have at least one line"}})
	}
	run, p := a.beginBatch(ctx, linesFingerprint, trace)
	if p != nil {
		return p
	}
	defer run.leave(ctx)
	run.defaults = given
	run.header(w, linesType)
	out := newOutbox(ctx, run.api.guard, w, control)
	defer out.close()
	for len(part) > 0 {
		lines, p := run.part(ctx, part)
		if p == nil {
			out.write(lines)
			part, p = read()
		}
		if p != nil {
			// Rows from here on have no result; the line says why.
			out.write(encodeResults(refuseAll(run.next, 1, p)))
			return nil
		}
	}
	run.complete = true
	return nil
}

// lineReader reads a batch of lines.
type lineReader struct {
	from  *bufio.Reader
	first *batchRow // read, but not given out yet
	count int
}

// defaults reads the first line if it is that of the defaults.
func (l *lineReader) defaults() (defaults, *Problem) {
	row, err := l.next()
	if err != nil {
		return nil, nil //nolint:nilerr // told when the rows are read
	}
	var given jsontext.Value
	if !row.tooLong && jsontext.Value(row.raw).IsValid() && jsontext.Value(row.raw).Kind() == jsontext.KindBeginObject {
		n := 0
		for name, value := range members(row.raw) {
			if n++; name == "defaults" {
				given = value
			}
		}
		if n != 1 {
			given = nil
		}
	}
	if given == nil {
		l.first = &row
		return nil, nil
	}
	d, p := parseDefaults(given)
	if p != nil {
		return nil, bodyProblem([]notify.Problem{{Pointer: "/defaults" + p.Pointer, Code: p.Code, Detail: p.Detail}})
	}
	return d, nil
}

// part reads the rows that are worked on together; none at the end.
func (l *lineReader) part() ([]batchRow, *Problem) {
	var rows []batchRow
	for size := 0; len(rows) < partLines && size < partBytes; {
		row, err := l.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, brokenBody(err)
		}
		if l.count++; l.count > maxStreamRows {
			if len(rows) > 0 { // these are answered first
				l.first, l.count = &row, l.count-1
				break
			}
			return nil, newProblem(http.StatusRequestEntityTooLarge, CodeTooLarge, "The batch has more than 10,000 lines; the rest was not read.")
		}
		rows, size = append(rows, row), size+len(row.raw)
	}
	return rows, nil
}

// next reads the next line that is not blank.
func (l *lineReader) next() (batchRow, error) {
	if row := l.first; row != nil {
		l.first = nil
		return *row, nil
	}
	for {
		var row batchRow
		var err error
		for {
			var piece []byte
			piece, err = l.from.ReadSlice('\n')
			if !row.tooLong {
				row.raw = append(row.raw, piece...)
			}
			if len(bytes.TrimRight(row.raw, "\r\n")) > maxLine {
				row = batchRow{tooLong: true}
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				break
			}
		}
		row.raw = bytes.TrimSpace(row.raw)
		switch {
		case row.tooLong, len(row.raw) > 0 && (err == nil || errors.Is(err, io.EOF)):
			return row, nil
		case err != nil:
			return batchRow{}, err
		}
	}
}

// brokenBody is the answer to a body that did not come to its end.
func brokenBody(err error) *Problem {
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return newProblem(http.StatusRequestTimeout, CodeTimeout, "The body took too long to arrive.")
	}
	return newProblem(http.StatusBadRequest, CodeBadRequest, "The body broke off or was not framed as HTTP demands.")
}
