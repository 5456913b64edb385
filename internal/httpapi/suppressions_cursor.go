package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Cursors here are made like those of [listInput]: a version, a position, and a mark
// of what they are good for.

// filterMark is the mark of a list of one project with these filters.
func filterMark(list, project string, filters ...string) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", append([]string{list, project}, filters...)))
	return sum[:markSize]
}

func makeCursor(position, mark []byte) string {
	return base64.RawURLEncoding.EncodeToString(slices.Concat([]byte{cursorVersion}, position, mark))
}

// readCursor returns the position in a cursor, which has this size.
func readCursor(cursor string, mark []byte, size int) ([]byte, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) != 1+size+len(mark) || b[0] != cursorVersion || !bytes.Equal(b[1+size:], mark) {
		return nil, false
	}
	return b[1 : 1+size], true
}

// suppressionCursor points behind an entry: its instant in microseconds, which is
// what Postgres keeps, the place of its channel, and its address.
func suppressionCursor(s *store.Suppression, mark []byte) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(s.At.UnixMicro()))
	b = append(b, byte(slices.Index(notify.Channels(), s.Channel)))
	return makeCursor(append(b, s.Address[:]...), mark)
}

// suppressionAt reads such a cursor; nil without one.
func suppressionAt(cursor string, mark []byte) (*store.Suppression, bool) {
	if cursor == "" {
		return nil, true
	}
	b, ok := readCursor(cursor, mark, 8+1+16)
	if !ok || int(b[8]) >= len(notify.Channels()) {
		return nil, false
	}
	s := &store.Suppression{At: time.UnixMicro(int64(binary.BigEndian.Uint64(b))).UTC(), Channel: notify.Channels()[b[8]]}
	copy(s.Address[:], b[9:])
	return s, s.At.Year() > 0 && s.At.Year() < 10_000
}

func eventCursor(id int64, mark []byte) string {
	return makeCursor(binary.BigEndian.AppendUint64(nil, uint64(id)), mark)
}

// eventAt reads the id in a cursor; 0 without one.
func eventAt(cursor string, mark []byte) (int64, bool) {
	if cursor == "" {
		return 0, true
	}
	b, ok := readCursor(cursor, mark, 8)
	if !ok {
		return 0, false
	}
	id := binary.BigEndian.Uint64(b)
	return int64(id), id > 0 && id <= math.MaxInt64
}
