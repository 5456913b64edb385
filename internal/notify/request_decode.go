package notify

import (
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// decodeRequest reads the JSON and nothing more.
func decodeRequest(body []byte) (request, []Problem) {
	var r request
	if p := Strict(body, &r); p != nil {
		return request{}, []Problem{*p}
	}
	return r, nil
}

// Strict decodes the JSON object body into v by the rules of [Parse]: I-JSON, at
// most [MaxDepth] deep, no unknown members. It returns the first fault, nil for
// none.
func Strict(body []byte, v any) *Problem {
	if depth(body) > MaxDepth {
		return &Problem{Code: CodeTooDeep, Detail: "arrays and objects must be nested at most 32 deep"}
	}
	if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true)); err != nil {
		return decodeProblem(body, err)
	}
	if jsontext.Value(body).Kind() != jsontext.KindBeginObject {
		return &Problem{Code: CodeType, Detail: "must be an object"} // null decodes into anything
	}
	return nil
}

// decodeProblem puts an error of the decoder in our own words: its text may hold
// the value.
func decodeProblem(body []byte, err error) *Problem {
	var semantic *json.SemanticError
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		return &Problem{Pointer: safePointer(syntax.JSONPointer), Code: CodeDuplicateMember, Detail: "must be there only once"}
	case errors.As(err, &syntax):
		detail := "must be valid JSON; it is broken at byte " + strconv.FormatInt(syntax.ByteOffset, 10)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			detail = "must be valid JSON; it ends too early"
		case !utf8.Valid(body):
			detail = "must be valid UTF-8"
		}
		return &Problem{Pointer: safePointer(syntax.JSONPointer), Code: CodeMalformed, Detail: detail}
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		return &Problem{Pointer: safePointer(semantic.JSONPointer), Code: CodeUnknownMember, Detail: "is not a member of this object"}
	case errors.As(err, &semantic):
		code, detail := wanted(semantic)
		return &Problem{Pointer: safePointer(semantic.JSONPointer), Code: code, Detail: detail}
	}
	return &Problem{Code: CodeMalformed, Detail: "must be valid JSON"}
}

// wanted says what should have stood where the decoder stumbled.
func wanted(e *json.SemanticError) (code, detail string) {
	if e.GoType == nil {
		return CodeType, "is of the wrong type"
	}
	switch e.GoType {
	case reflect.TypeFor[Duration]():
		return CodeFormat, durationDetail
	case reflect.TypeFor[Devices](), reflect.TypeFor[[]Device]():
		return CodeType, "must be a device or an array of devices"
	case reflect.TypeFor[EmailAddress](), reflect.TypeFor[emailObject]():
		return CodeType, "must be an address, or an object with address and name"
	case reflect.TypeFor[[]byte]():
		return CodeFormat, "must be base64 (RFC 4648, section 4) in a string"
	}
	switch kind := e.GoType.Kind(); kind {
	case reflect.String:
		detail = "must be a string"
	case reflect.Int:
		detail = "must be a whole number"
	case reflect.Slice:
		detail = "must be an array"
	case reflect.Struct, reflect.Map:
		detail = "must be an object"
	default:
		detail = "is of the wrong type"
	}
	return CodeType, detail
}

// safePointer cuts a pointer before a name that is not of the plain kind: a
// caller may have put an address where a name belongs, and answers are logged.
func safePointer(p jsontext.Pointer) string {
	var out strings.Builder
	for token := range p.Tokens() {
		if !plainName(token) {
			break
		}
		out.WriteString("/" + token)
	}
	return out.String()
}

// plainName reports whether s is 1 to 40 ASCII letters, digits, dots, hyphens
// and underscores, and no long number.
func plainName(s string) bool {
	digits := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			digits++
		case c == '_', c == '-', c == '.', isLetter(c):
		default:
			return false
		}
	}
	return s != "" && len(s) <= 40 && digits < 7
}

// depth is how deep arrays and objects of the JSON text lie in each other. Of a
// text that is not JSON it is any number.
func depth(b []byte) int {
	now, most, inString := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			now++
			most = max(most, now)
		case c == '}', c == ']':
			now--
		}
	}
	return most
}

// texts finds U+0000 in names and values of a body that was decoded.
func (v *validator) texts(body []byte) {
	if !mayHoldNUL(body) {
		return
	}
	d := jsontext.NewDecoder(strings.NewReader(string(body)))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return
		}
		if token.Kind() == jsontext.KindString && strings.ContainsRune(token.String(), 0) {
			v.add(safePointer(d.StackPointer()), CodeFormat, "must not contain the character U+0000")
		}
	}
}

// mayHoldNUL reports whether the JSON text has an escape for U+0000: it may not
// stand there unescaped.
func mayHoldNUL(b []byte) bool {
	for i := 0; i+5 < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		if string(b[i+1:i+6]) == "u0000" {
			return true
		}
		i++
	}
	return false
}
