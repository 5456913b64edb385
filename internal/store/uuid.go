package store

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// registerUUID lets a connection move [uuid.UUID] as the 16 bytes that it is. By
// itself pgx takes it for a driver.Valuer and a sql.Scanner, and goes by its text:
// that was a seventh of all the memory a notification cost.
func registerUUID(m *pgtype.Map) {
	one := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	m.RegisterType(one)
	m.RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: one}})
}

// uuidCodec is pgx's own with a short way for [uuid.UUID].
type uuidCodec struct{ pgtype.UUIDCodec }

// PlanEncode implements [pgtype.Codec].
func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return encodeUUID{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

// PlanScan implements [pgtype.Codec].
func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return scanUUID{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type encodeUUID struct{}

// Encode implements [pgtype.EncodePlan].
func (encodeUUID) Encode(value any, buf []byte) ([]byte, error) {
	id, ok := value.(uuid.UUID)
	if !ok {
		return nil, fmt.Errorf("encode uuid: cannot encode %T", value)
	}
	return append(buf, id[:]...), nil
}

type scanUUID struct{}

// Scan implements [pgtype.ScanPlan].
func (scanUUID) Scan(src []byte, target any) error {
	id, ok := target.(*uuid.UUID)
	if !ok || len(src) != len(id) { // also NULL, which has no place in it
		return fmt.Errorf("scan uuid: cannot scan %d bytes into %T", len(src), target)
	}
	copy(id[:], src)
	return nil
}
