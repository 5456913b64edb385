package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size in bytes, written as "1MiB", "512KiB" or "1000000".
type Bytes int64

var units = []struct {
	suffix string
	factor int64
}{
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"B", 1},
	{"", 1},
}

// UnmarshalText implements [encoding.TextUnmarshaler]. The size is a whole number
// of one unit: B, kB, MB, GB, KiB, MiB or GiB; none means bytes.
func (b *Bytes) UnmarshalText(text []byte) error {
	err := errors.New(`must be a size such as "1MiB", "512KiB" or "1000000"`)
	for _, u := range units {
		digits, ok := strings.CutSuffix(string(text), u.suffix)
		if !ok {
			continue
		}
		n, parseErr := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if parseErr != nil || n < 0 || n > math.MaxInt64/u.factor {
			return err
		}
		*b = Bytes(n * u.factor)
		return nil
	}
	return err
}

// String is the size in the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range units[:3] {
		if b != 0 && int64(b)%u.factor == 0 {
			return strconv.FormatInt(int64(b)/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// MarshalText implements [encoding.TextMarshaler].
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }
