package links_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/links"
)

const base = "https://n.example.com"

func signer(seed byte) links.Signer {
	key := make([]byte, links.KeySize)
	key[0] = seed
	return links.NewSigner(base, key)
}

// failer is a test of testing or of rapid.
type failer interface {
	Fatalf(format string, args ...any)
}

func token(t failer, link string) string {
	token, ok := strings.CutPrefix(link, base+"/a/")
	if !ok {
		t.Fatalf("%q does not begin with the base", link)
	}
	return token
}

func TestALinkIsForItsNotificationOnly(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("0193a1b2-0000-7000-8000-000000000001")
	link := signer(1).Acknowledge(id)
	if want := len(base+"/a/") + 38; len(link) != want {
		t.Errorf("the link is %q, want one of %d characters", link, want)
	}
	got, err := signer(1).Acknowledged(token(t, link))
	if err != nil || got != id {
		t.Errorf("the link is for %v, %v", got, err)
	}
	if _, err := signer(2).Acknowledged(token(t, link)); err == nil {
		t.Error("another key takes it")
	}
	for _, bad := range []string{"", "a", token(t, link) + "\n", token(t, link) + "A", strings.ToLower(token(t, link))} {
		if _, err := signer(1).Acknowledged(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestAnAlteredLinkIsNone(t *testing.T) {
	t.Parallel()
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	rapid.Check(t, func(t *rapid.T) {
		id := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		good := token(t, signer(1).Acknowledge(id))
		i := rapid.IntRange(0, len(good)-1).Draw(t, "place")
		c := alphabet[rapid.IntRange(0, len(alphabet)-1).Draw(t, "character")]
		bad := good[:i] + string(c) + good[i+1:]
		got, err := signer(1).Acknowledged(bad)
		if (err == nil) != (bad == good) {
			t.Fatalf("%q altered to %q: %v, %v", good, bad, got, err)
		}
	})
}
