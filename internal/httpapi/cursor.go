package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
)

// A cursor of events is a version, a position, and a mark of the project, which
// it is good for alone. It is no secret and opens nothing: events are read for
// the project of the key.
const eventCursorVersion = 1

// EventCursor is how a position of a project's events is shown.
func EventCursor(project string, position int64) string {
	b := binary.BigEndian.AppendUint64([]byte{eventCursorVersion}, uint64(position))
	return base64.RawURLEncoding.EncodeToString(append(b, eventMark(project)...))
}

// eventPosition reads a cursor of the project.
func eventPosition(project, cursor string) (int64, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) != 1+8+markSize || b[0] != eventCursorVersion || !bytes.Equal(b[9:], eventMark(project)) {
		return 0, false
	}
	position := binary.BigEndian.Uint64(b[1:9])
	return int64(position), position <= math.MaxInt64
}

func eventMark(project string) []byte {
	sum := sha256.Sum256([]byte("events\x00" + project))
	return sum[:markSize]
}
