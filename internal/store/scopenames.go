package store

import "strings"

// Waits whose scope is not one thing. No account's name holds a colon, and no
// scope a space.
const (
	anyPrefix     = "any:" // several scopes; the wait ends when one of them opens
	refusedPrefix = "not:" // accounts that turned the delivery away
)

// maxWaitScope is the longest scope of a wait, in bytes.
const maxWaitScope = 1000

// AnyOf is the scope of a wait that ends when one of several scopes opens, which
// are in the order in which they are expected to. Those that there is no room for
// are left out. One scope is itself.
func AnyOf(scopes []string) string {
	if len(scopes) == 1 {
		return scopes[0]
	}
	return join(anyPrefix, scopes)
}

// EachOf returns the scopes of a wait's scope, and whether there are several.
func EachOf(scope string) (several []string, ok bool) {
	rest, ok := strings.CutPrefix(scope, anyPrefix)
	if !ok {
		return nil, false
	}
	return strings.Fields(rest), true
}

// RefusedBy is the scope of a wait that is over at once and goes to any account
// but these.
func RefusedBy(accounts []string) string { return join(refusedPrefix, accounts) }

func refusedBy(scope string) []string {
	rest, ok := strings.CutPrefix(scope, refusedPrefix)
	if !ok {
		return nil
	}
	return strings.Fields(rest)
}

func join(prefix string, names []string) string {
	var b strings.Builder
	b.WriteString(prefix)
	for i, name := range names {
		if b.Len()+1+len(name) > maxWaitScope {
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(name)
	}
	return b.String()
}
