package strict

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// Leaf is a setting that one text can give, as an environment variable or a flag
// does.
type Leaf struct {
	Path string // such as "http.max_body"
	// Secret says that the value is a credential.
	Secret bool
	value  reflect.Value
}

// Set reads the setting from text. The error says what is allowed, without the
// text.
func (l Leaf) Set(text string) error { return setText(l.value, text) }

// Text is the setting as it stands, redacted where it is a secret.
func (l Leaf) Text() string { return fmt.Sprint(l.value.Interface()) }

// Leaves returns the settings of into, a pointer to a struct, in the order of its
// fields.
func Leaves(into any) []Leaf { return leaves("", reflect.ValueOf(into).Elem()) }

func leaves(path string, v reflect.Value) []Leaf {
	var out []Leaf
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			continue
		}
		f := v.Field(i)
		_, isSecret := reflect.TypeAssert[secret.Value](f)
		_, isText := reflect.TypeAssert[encoding.TextUnmarshaler](f.Addr())
		switch {
		case isSecret || isText:
			out = append(out, Leaf{Path: join(path, name), Secret: isSecret, value: f})
		case f.Kind() == reflect.Struct:
			out = append(out, leaves(join(path, name), f)...)
		case f.Kind() == reflect.String || f.Kind() == reflect.Bool || f.CanInt() || f.CanUint() || f.CanFloat():
			out = append(out, Leaf{Path: join(path, name), value: f})
		}
	}
	return out
}

func setText(v reflect.Value, text string) error {
	switch p := v.Addr().Interface().(type) {
	case *secret.Value:
		*p = secret.New(text)
		return nil
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return errors.New(`must be a duration such as "90s" or "2m30s"`)
		}
		*p = d
		return nil
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(text))
	}
	return setBasic(v, text)
}

func setBasic(v reflect.Value, text string) error {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("must be true or false")
		}
		v.SetBool(b)
	case v.CanInt():
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return errors.New("must be a whole number")
		}
		v.SetInt(n)
	case v.CanUint():
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return errors.New("must be a whole number, 0 or more")
		}
		v.SetUint(n)
	case v.CanFloat():
		f, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil {
			return errors.New("must be a number")
		}
		v.SetFloat(f)
	default:
		return fmt.Errorf("cannot be set from text (%s)", v.Type())
	}
	return nil
}
