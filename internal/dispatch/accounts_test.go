package dispatch

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func weighted(weights ...float64) *Registry {
	var accounts []*Account
	for i, w := range weights {
		a := muted(string(rune('a'+i)), notify.SMS, "twilio")
		a.Weight = w
		accounts = append(accounts, a)
	}
	return registryOf(accounts...)
}

func names(accounts []*Account) (out []string) {
	for _, a := range accounts {
		out = append(out, a.Provider.Info().Account)
	}
	return out
}

func TestAccountsComeInTheirOrderWithoutWeights(t *testing.T) {
	t.Parallel()
	r := weighted(0, 0, 0)
	for range 20 {
		if got := names(r.candidates(nil, notify.SMS, "p", "", "", keyOf(uuid.New(), 0, 0))); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Fatalf("%v", got)
		}
	}
}

func TestEachAccountComesFirstInProportionToItsWeight(t *testing.T) {
	t.Parallel()
	r := weighted(80, 0, 20)
	const many = 20_000
	first, second := map[string]int{}, map[string]int{}
	for range many {
		id := uuid.Must(uuid.NewV7())
		key := keyOf(id, 1, 2)
		got := names(r.candidates(nil, notify.SMS, "p", "", "", key))
		if again := names(r.candidates(nil, notify.SMS, "p", "", "", keyOf(id, 1, 2))); !slices.Equal(got, again) {
			t.Fatalf("%v, and then %v", got, again)
		}
		first[got[0]]++
		second[got[1]]++
		if got[2] != "b" {
			t.Fatalf("one without a weight comes before one with: %v", got)
		}
	}
	if off := math.Abs(float64(first["c"])/many - 0.2); off > 0.015 {
		t.Errorf("first %v of %d", first, many)
	}
}

// A draw for a share is another one than that for the order, or an account that
// comes back would get none of those that do not come to it first.
func TestDrawsAreEvenAndIndependent(t *testing.T) {
	t.Parallel()
	const many = 20_000
	low, both := 0, 0
	for range many {
		key := keyOf(uuid.Must(uuid.NewV7()), 0, 0)
		if draw(key, "a", 0) < 0.25 {
			low++
			if draw(key, "a", 1) < 0.5 {
				both++
			}
		}
	}
	if math.Abs(float64(low)/many-0.25) > 0.02 || math.Abs(float64(both)/float64(low)-0.5) > 0.04 {
		t.Errorf("%d and %d of %d", low, both, many)
	}
}

func TestAlternativesAreTheOtherAccountsOfTheGroup(t *testing.T) {
	t.Parallel()
	hidden := muted("hooks", notify.Webhook, "webhook")
	hidden.Hidden = true
	r := registryOf(
		muted("fcm-a", notify.Push, "fcm"), muted("fcm-b", notify.Push, "fcm"), muted("apns", notify.Push, "apns"),
		muted("meta", notify.WhatsApp, "meta"), muted("twilio", notify.WhatsApp, "twilio"),
		muted("web", notify.Webhook, "webhook"), hidden,
	)
	for scope, want := range map[string][]string{
		"fcm-a": {"fcm-b"}, "apns": nil, "meta": {"twilio"}, "twilio": {"meta"}, "web": nil, "hooks": nil, "meta/pair": nil, "gone": nil,
	} {
		if diff := cmp.Diff(want, r.Alternatives(scope)); diff != "" {
			t.Errorf("%s: %s", scope, diff)
		}
	}
}

func TestScopesAreKeptWithTheirProviderWhereThereAreSeveral(t *testing.T) {
	t.Parallel()
	all := []string{"=meta=number", "=meta=to:1", "=twilio=sender"}
	for provider, want := range map[string][]string{"meta": {"number", "to:1"}, "twilio": {"sender"}, "met": nil} {
		if diff := cmp.Diff(want, scopesFor(provider, all)); diff != "" {
			t.Errorf("%s: %s", provider, diff)
		}
	}
	plain := []string{"sender", "to:1"}
	if got := scopesFor("twilio", plain); !slices.Equal(got, plain) {
		t.Errorf("%v", got)
	}
}

func BenchmarkCandidates(b *testing.B) {
	id := uuid.Must(uuid.NewV7())
	for name, r := range map[string]*Registry{"one": weighted(0), "two": weighted(0, 0), "weights": weighted(80, 20)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			item := store.Item{ID: id}
			for b.Loop() {
				var room [usual]*Account
				if len(r.candidates(room[:0], notify.SMS, "p", "", "", keyOf(item.ID, 0, 0))) == 0 {
					b.Fatal("none")
				}
			}
		})
	}
}
