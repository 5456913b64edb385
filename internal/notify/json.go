package notify

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Duration is a [time.Duration] that JSON writes as Go does: "90s", "2m30s".
type Duration time.Duration

// Std returns d as a [time.Duration].
func (d Duration) Std() time.Duration { return time.Duration(d) }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It reads one to four
// numbers with units, such as "90s", "1h30m" or "2.5s"; units are ms, s, m and h.
func (d *Duration) UnmarshalText(b []byte) error {
	v, ok := parseDuration(string(b))
	if !ok {
		return errors.New(durationDetail)
	}
	*d = v
	return nil
}

// UnmarshalJSONFrom accepts one device or a list of them.
func (d *Devices) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '{' {
		var one Device
		if err := json.UnmarshalDecode(dec, &one); err != nil {
			return err
		}
		*d = Devices{one}
		return nil
	}
	var many []Device
	if err := json.UnmarshalDecode(dec, &many); err != nil {
		return err
	}
	*d = many
	return nil
}

// UnmarshalJSONFrom accepts an address alone or {"address","name"}.
func (e *EmailAddress) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '"' {
		return json.UnmarshalDecode(dec, &e.Address)
	}
	return json.UnmarshalDecode(dec, (*emailObject)(e))
}

// emailObject is an [EmailAddress] in its long form, without its decoder.
type emailObject EmailAddress

// Encode writes v as the JSON that is stored and answered: deterministic, with
// its nil slices as empty arrays.
func Encode(v any) ([]byte, error) {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

// Decode reads JSON that [Encode] wrote; unknown members are ignored, so that an
// older node reads what a newer one stored.
func Decode(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}
