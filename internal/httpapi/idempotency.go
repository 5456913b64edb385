package httpapi

import (
	"context"
	"crypto/sha256"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const keyHeader = "Idempotency-Key"

// withKey reads the Idempotency-Key before the operation, which finds it with
// keyFrom. Huma would show the first of several only.
func withKey(ctx huma.Context, next func(huma.Context)) {
	r, _ := humago.Unwrap(ctx)
	key, p := idempotencyKey(r.Header.Values(keyHeader))
	if p != nil {
		refuse(ctx, p)
		return
	}
	next(huma.WithValue(ctx, idempotencyContext, key))
}

// keyFrom returns the key that withKey read, empty for none.
func keyFrom(ctx context.Context) string {
	key, _ := ctx.Value(idempotencyContext).(string)
	return key
}

// idempotencyKey reads an Idempotency-Key header: a quoted string as in RFC 9651,
// section 3.3.3, which is what the IETF draft wants, or the key bare, which is
// what most callers send.
func idempotencyKey(lines []string) (string, *Problem) {
	const name = "header." + keyHeader
	switch len(lines) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", parameterProblem(name, notify.CodeDuplicate, "must be there only once")
	}
	key := lines[0]
	ok := !strings.ContainsAny(key, `",;\ `)
	if inner, quoted := strings.CutPrefix(key, `"`); quoted {
		key, ok = unquote(inner)
	}
	for i := range len(key) {
		ok = ok && key[i] >= ' ' && key[i] < 0x7f
	}
	if !ok || strings.TrimSpace(key) == "" || len(key) > 255 {
		return "", parameterProblem(name, notify.CodeFormat, "must be 1 to 255 visible ASCII characters, bare or in double quotes")
	}
	return key, nil
}

// unquote reads the rest of a quoted string after its first quote.
func unquote(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), i == len(s)-1
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", false
}

// fingerprint is the SHA-256 of a body that was parsed, in a form that does not
// depend on white space, escapes and the order of members.
func fingerprint(body []byte) [sha256.Size]byte {
	canonical := jsontext.Value(body).Clone()
	if err := canonical.Format(jsontext.ReorderRawObjects(true)); err != nil {
		canonical = body // it was decoded before, so this cannot happen
	}
	return sha256.Sum256(canonical)
}
