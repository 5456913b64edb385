package store

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// registerArrays lets a connection write the columns of a flush in one pass. By
// itself pgx boxes each element and looks up how to write it: that was a sixth of
// all the memory a notification cost.
func registerArrays(m *pgtype.Map) {
	for _, oid := range []uint32{
		pgtype.BoolArrayOID, pgtype.ByteaArrayOID, pgtype.Int2ArrayOID, pgtype.Int4ArrayOID, pgtype.Int8ArrayOID,
		pgtype.JSONArrayOID, pgtype.TextArrayOID, pgtype.TimestamptzArrayOID, pgtype.UUIDArrayOID,
	} {
		t, ok := m.TypeForOID(oid)
		if !ok {
			continue
		}
		if codec, ok := t.Codec.(*pgtype.ArrayCodec); ok {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: arrayCodec{codec}})
		}
	}
}

// arrayCodec is pgx's own with a short way for slices of the element's plain type.
type arrayCodec struct{ *pgtype.ArrayCodec }

// PlanEncode implements [pgtype.Codec].
func (c arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode && encodes(value, c.ElementType.OID) {
		return encodeArray{c.ElementType.OID}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// encodes reports whether [encodeArray] makes an array of a type's elements of a
// slice.
func encodes(value any, element uint32) bool {
	switch value.(type) {
	case []bool:
		return element == pgtype.BoolOID
	case [][]byte:
		return element == pgtype.ByteaOID || element == pgtype.JSONOID
	case []int16, []*int16:
		return element == pgtype.Int2OID
	case []int32:
		return element == pgtype.Int4OID
	case []int64, []*int64:
		return element == pgtype.Int8OID
	case []string, []*string:
		return element == pgtype.TextOID
	case []time.Time, []*time.Time:
		return element == pgtype.TimestamptzOID
	case []uuid.UUID:
		return element == pgtype.UUIDOID
	}
	return false
}

// encodeArray writes an array of one dimension. Nil elements are NULL.
type encodeArray struct{ element uint32 }

// Encode implements [pgtype.EncodePlan].
func (e encodeArray) Encode(value any, buf []byte) ([]byte, error) {
	switch v := value.(type) {
	case []bool:
		return appendArray(buf, e.element, v, putBool), nil
	case [][]byte:
		return appendArray(buf, e.element, v, putBytes), nil
	case []int16:
		return appendArray(buf, e.element, v, putInt16), nil
	case []*int16:
		return appendArray(buf, e.element, v, orNull(putInt16)), nil
	case []int32:
		return appendArray(buf, e.element, v, putInt32), nil
	case []int64:
		return appendArray(buf, e.element, v, putInt64), nil
	case []*int64:
		return appendArray(buf, e.element, v, orNull(putInt64)), nil
	case []string:
		return appendArray(buf, e.element, v, putText), nil
	case []*string:
		return appendArray(buf, e.element, v, orNull(putText)), nil
	case []time.Time:
		return appendArray(buf, e.element, v, putTime), nil
	case []*time.Time:
		return appendArray(buf, e.element, v, orNull(putTime)), nil
	case []uuid.UUID:
		return appendArray(buf, e.element, v, putUUID), nil
	}
	return nil, fmt.Errorf("encode array: cannot encode %T", value)
}

// appendArray appends values, which put appends one by one, each after its length.
func appendArray[T any](buf []byte, element uint32, values []T, put func([]byte, T) []byte) []byte {
	if values == nil {
		return nil // NULL
	}
	dimensions := min(len(values), 1)
	buf = binary.BigEndian.AppendUint32(buf, uint32(dimensions))
	buf = binary.BigEndian.AppendUint32(buf, 0) // Postgres looks itself whether any is NULL
	buf = binary.BigEndian.AppendUint32(buf, element)
	if dimensions == 0 {
		return buf
	}
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(values)))
	buf = binary.BigEndian.AppendUint32(buf, 1) // the lower bound
	for _, v := range values {
		buf = put(buf, v)
	}
	return buf
}

// nullLength is the length of NULL.
const nullLength = 1<<32 - 1

func orNull[T any](put func([]byte, T) []byte) func([]byte, *T) []byte {
	return func(buf []byte, v *T) []byte {
		if v == nil {
			return binary.BigEndian.AppendUint32(buf, nullLength)
		}
		return put(buf, *v)
	}
}

func putBool(buf []byte, v bool) []byte {
	buf = binary.BigEndian.AppendUint32(buf, 1)
	if v {
		return append(buf, 1)
	}
	return append(buf, 0)
}

func putInt16(buf []byte, v int16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(buf, 2), uint16(v))
}

func putInt32(buf []byte, v int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(buf, 4), uint32(v))
}

func putInt64(buf []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(buf, 8), uint64(v))
}

func putBytes(buf, v []byte) []byte {
	if v == nil {
		return binary.BigEndian.AppendUint32(buf, nullLength)
	}
	return append(binary.BigEndian.AppendUint32(buf, uint32(len(v))), v...)
}

func putText(buf []byte, v string) []byte {
	return append(binary.BigEndian.AppendUint32(buf, uint32(len(v))), v...)
}

func putUUID(buf []byte, v uuid.UUID) []byte {
	return append(binary.BigEndian.AppendUint32(buf, uint32(len(v))), v[:]...)
}

// epoch is where Postgres begins to count, in seconds of Unix.
const epoch = 946_684_800

func putTime(buf []byte, v time.Time) []byte {
	return putInt64(buf, (v.Unix()-epoch)*1_000_000+int64(v.Nanosecond())/1000)
}
