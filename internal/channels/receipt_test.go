package channels_test

import (
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

func TestAReferenceComesBackAsItWent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := func(name string) uuid.UUID {
			return uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name))
		}
		r := channels.Ref{
			Notification: id("notification"), Step: rapid.IntRange(0, 31).Draw(t, "step"),
			Target: rapid.IntRange(0, 999).Draw(t, "target"),
		}
		r.Notification[6] |= 0x70
		if rapid.Bool().Draw(t, "attempt") {
			r.Attempt = id("attempt")
		}
		s := r.String()
		if len(s) > 47 {
			t.Fatalf("%q is too long", s)
		}
		if back, err := channels.ParseRef(s); err != nil || back != r {
			t.Fatalf("%+v came back as %+v, %v", r, back, err)
		}
	})
}

func TestWhatIsNoReferenceIsRefused(t *testing.T) {
	t.Parallel()
	good := channels.Ref{Notification: uuid.New(), Step: 1}.String()
	for _, s := range []string{"", "x", good[:len(good)-1], good + "AA", good + "\n", "AAAAAAAAAAAAAAAAAAAAAAAAAA"} {
		if r, err := channels.ParseRef(s); err == nil {
			t.Errorf("%q is %+v", s, r)
		}
	}
	if s := (channels.Ref{}).String(); s != "" {
		t.Errorf("nothing is %q", s)
	}
}
