package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// maxBlock bounds a line and the data of a block of a stream. An event is a few
// hundred bytes.
const maxBlock = 1 << 20

// errBlock: another try would bring the same again.
var errBlock = errors.New("client: the stream has a block that is too long")

// block is one block of a stream of Server-Sent Events (WHATWG HTML, section
// 9.2). One without data only says how far the stream has come.
type block struct {
	id    string        // empty for none
	data  string        // empty for none
	retry time.Duration // what the service asks to wait before the next connection; negative for no word
}

// blocks reads a stream.
type blocks struct {
	lines *bufio.Scanner
	begun bool
}

func newBlocks(r io.Reader) *blocks {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxBlock)
	lines.Split(lineSplitter())
	return &blocks{lines: lines}
}

// lineSplitter finds lines that end in CR, LF or both, without waiting for what
// follows on a CR. What has no end is not a line.
func lineSplitter() bufio.SplitFunc {
	afterCR := false
	return func(data []byte, _ bool) (int, []byte, error) {
		skip := 0
		if afterCR && len(data) > 0 {
			afterCR = false
			if data[0] == '\n' {
				skip = 1
			}
		}
		n := bytes.IndexAny(data[skip:], "\r\n")
		if n < 0 {
			return skip, nil, nil
		}
		line := data[skip : skip+n]
		afterCR = data[skip+n] == '\r'
		return skip + n + 1, line, nil
	}
}

// next returns the next whole block. Half a one at the end of the stream is
// [io.ErrUnexpectedEOF] or whatever broke the stream.
func (s *blocks) next() (block, error) {
	b, data := block{retry: -1}, []string(nil)
	size := 0
	for s.lines.Scan() {
		line := s.lines.Text()
		if !s.begun {
			line, s.begun = strings.TrimPrefix(line, "\ufeff"), true
		}
		if line == "" {
			b.data = strings.Join(data, "\n")
			return b, nil
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			if !strings.ContainsRune(value, 0) {
				b.id = value
			}
		case "retry":
			if ms, err := strconv.ParseUint(value, 10, 31); err == nil {
				b.retry = time.Duration(ms) * time.Millisecond
			}
		case "data":
			if size += len(value); size > maxBlock {
				return block{}, errBlock
			}
			data = append(data, value)
		}
	}
	switch err := s.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return block{}, errBlock
	case err != nil:
		return block{}, fmt.Errorf("client: read the stream: %w", err)
	}
	return block{}, io.ErrUnexpectedEOF
}
