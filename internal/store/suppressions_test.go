package store_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// told is the history of a project's list, oldest first, a word or some for each
// change.
func (d *db) told(project string) []string {
	d.t.Helper()
	events, err := d.SuppressionHistory(d.t.Context(), store.SuppressionFilter{Project: project, Limit: 100}, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	out := []string{}
	for _, e := range slices.Backward(events) {
		line := e.Action + " " + string(e.Channel) + " " + e.Reason + " " + e.Source
		if !e.Until.IsZero() {
			line += " for a while"
		}
		if e.By+e.Why != "" {
			line += ": " + e.By + ", " + e.Why
		}
		out = append(out, line)
	}
	return out
}

func phone(number string) store.Address {
	return store.Address{Channel: notify.SMS, Hash: notify.Target{Phone: number}.Hash(notify.SMS)}
}

// entry is one of project a's list.
func entry(a store.Address, reason string, at, until time.Time) store.Suppression {
	return store.Suppression{Project: "a", Channel: a.Channel, Address: a.Hash, Reason: reason, Source: "main", At: at, Until: until}
}

func (d *db) suppress(list ...store.Suppression) {
	d.t.Helper()
	if err := d.Suppress(d.t.Context(), list); err != nil {
		d.t.Fatal(err)
	}
}

func (d *db) listed(f store.SuppressionFilter) []store.Suppression {
	d.t.Helper()
	if f.Limit == 0 {
		f.Limit = 100
	}
	list, err := d.Suppressions(d.t.Context(), f)
	if err != nil {
		d.t.Fatal(err)
	}
	return list
}

func TestEveryChangeOfTheSuppressionListIsTold(t *testing.T) {
	t.Parallel()
	d := open(t)
	first := d.accept(row(project("a")))[0]
	at := now()
	a := store.Address{Channel: first.Channel, Hash: first.Address}

	failed := after0(first, store.After{Status: notify.Failed, Final: true})
	failed.Suppress = new(entry(a, "recipient_rejected", at, at.Add(time.Hour)))
	d.record(failed)
	manual := entry(a, store.ReasonManual, at, time.Time{})
	manual.By, manual.Why = "ana (1)", "asked by phone"
	shorter := entry(a, store.ReasonManual, at, at.Add(time.Minute))
	d.suppress(shorter) // changes nothing, and is not told
	d.suppress(manual)
	d.suppress(manual) // no more does this
	if err := d.Lift(t.Context(), "a", a, "bo (2)", "ticket 7", at); err != nil {
		t.Fatal(err)
	}
	d.consents(store.Consent{Channel: notify.SMS, Address: a.Hash, Stop: true})
	d.consents(store.Consent{Channel: notify.SMS, Address: a.Hash}, store.Consent{Channel: notify.SMS, Address: a.Hash})
	if err := d.Applied(t.Context(), nil, []*store.Suppression{new(entry(a, "suppressed", at, at.Add(time.Second)))}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Expire(t.Context(), at.Add(-day), at.Add(time.Minute), 100); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"added sms recipient_rejected main for a while",
		"extended sms manual main: ana (1), asked by phone",
		"lifted sms manual main: bo (2), ticket 7",
		"added sms stop main",
		"lifted sms stop main: , start",
		"added sms suppressed main for a while",
		"expired sms suppressed main for a while",
	}
	if diff := cmp.Diff(want, d.told("a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := d.listed(store.SuppressionFilter{Project: "a"}); len(got) != 0 {
		t.Errorf("still there: %+v", got)
	}
	if got := d.told("b"); len(got) != 0 {
		t.Errorf("another project is told: %v", got)
	}
}

func TestAProcessIsToldOfWhatItChangedOnTheSuppressionList(t *testing.T) {
	t.Parallel()
	var got []store.SuppressionChange
	d := open(t)
	s, err := store.Open(t.Context(), d.url, store.Options{SuppressionsChanged: func(c []store.SuppressionChange) { got = append(got, c...) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	first, at := d.accept(row(project("a")))[0], now()
	a := store.Address{Channel: first.Channel, Hash: first.Address}
	d.Store = s
	failed := after0(first, store.After{Status: notify.Failed, Final: true})
	failed.Suppress = new(entry(a, "recipient_rejected", at, at.Add(time.Hour)))
	d.record(failed)
	manual := entry(a, store.ReasonManual, at, time.Time{})
	manual.Source, manual.By = "ana (1)", "ana (1)"
	d.suppress(manual, manual)
	d.suppress(manual) // nothing more
	if err := d.Lift(t.Context(), "a", a, "bo (2)", "ticket 7", at); err != nil {
		t.Fatal(err)
	}
	d.suppress(entry(a, "x", at, at.Add(-time.Minute))) // whose end is told nobody
	d.consents(store.Consent{Channel: notify.SMS, Address: a.Hash, Stop: true}, store.Consent{Channel: notify.SMS, Address: a.Hash})
	bad := entry(a, "y", at, time.Time{})
	bad.Why = strings.Repeat("x", 501)
	if err := d.Suppress(t.Context(), []store.Suppression{bad}); err == nil {
		t.Fatal("a text that is too long was kept")
	}
	want := []store.SuppressionChange{
		{Channel: notify.SMS, Action: "added", Reason: "recipient_rejected", Source: "main"},
		{Channel: notify.SMS, Action: "extended", Reason: "manual", By: "ana (1)"},
		{Channel: notify.SMS, Action: "lifted", Reason: "manual", By: "bo (2)"},
		{Channel: notify.SMS, Action: "added", Reason: "x", Source: "main"},
		{Channel: notify.SMS, Action: "added", Reason: "stop", Source: "main"},
		{Channel: notify.SMS, Action: "lifted", Reason: "stop", Source: "main"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnEntryWhoseTimeIsOverIsAddedAnewAndNotExtended(t *testing.T) {
	t.Parallel()
	d := open(t)
	a, at := phone("+15005550006"), now()
	d.suppress(entry(a, "recipient_rejected", at.Add(-2*time.Hour), at.Add(-time.Hour)))
	d.suppress(entry(a, store.ReasonManual, at, time.Time{}))
	want := []string{
		"added sms recipient_rejected main for a while", "expired sms recipient_rejected main for a while", "added sms manual main",
	}
	if diff := cmp.Diff(want, d.told("a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOfEntriesThatComeAtOnceTheLongestStands(t *testing.T) {
	t.Parallel()
	d := open(t)
	a, at := phone("+15005550006"), now()
	d.suppress(entry(a, "x", at, at.Add(time.Hour)), entry(a, "y", at, time.Time{}), entry(a, "z", at, at.Add(time.Minute)))
	if got := d.listed(store.SuppressionFilter{Project: "a"}); len(got) != 1 || got[0].Reason != "y" || !got[0].Until.IsZero() {
		t.Errorf("%+v", got)
	}
}

func TestALiftedAddressIsWrittenToAgain(t *testing.T) {
	t.Parallel()
	d := open(t)
	at := now()
	mine := d.accept(row(project("a")))[0]
	a := store.Address{Channel: mine.Channel, Hash: mine.Address}
	foreign := entry(a, store.ReasonManual, at, time.Time{})
	foreign.Project = "b"
	d.suppress(entry(a, store.ReasonManual, at, time.Time{}), foreign)
	if got := d.tryClaim(claimOf(mine)); len(got) != 0 {
		t.Fatal("a suppressed address is written to")
	}
	if bar, err := d.Bars(t.Context(), &mine); err != nil || !bar.Suppressed || bar.Reason != store.ReasonManual {
		t.Errorf("bar %+v, %v", bar, err)
	}
	for _, other := range []store.Address{{Channel: notify.WhatsApp, Hash: a.Hash}, phone("+15005550007")} {
		if err := d.Lift(t.Context(), "a", other, "", "", at); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("what is not there is lifted: %v", err)
		}
	}
	if err := d.Lift(t.Context(), "a", a, "ana", "why", at); err != nil {
		t.Fatal(err)
	}
	if err := d.Lift(t.Context(), "a", a, "ana", "why", at); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("lifted twice: %v", err)
	}
	if got := d.tryClaim(claimOf(mine)); len(got) != 1 {
		t.Error("a lifted address is not written to")
	}
	if got := d.listed(store.SuppressionFilter{Project: "b"}); len(got) != 1 {
		t.Errorf("the entry of another project is gone: %+v", got)
	}
}

func TestTheSuppressionListIsReadInPages(t *testing.T) {
	t.Parallel()
	d := open(t)
	at := now()
	var all []store.Suppression
	for i := range 7 {
		s := entry(phone("+1500555000"+string(rune('0'+i))), "manual", at.Add(time.Duration(i/3)*time.Second), time.Time{}) // some at once
		if i == 2 {
			s.Reason = store.ReasonStop
		}
		all = append(all, s)
	}
	mail := store.Address{Channel: notify.Email, Hash: notify.Target{Email: &notify.EmailAddress{Address: "ana@example.com"}}.Hash(notify.Email)}
	over := entry(phone("+15005550009"), "manual", at.Add(-time.Hour), at.Add(-time.Minute))
	foreign := entry(phone("+15005550001"), "manual", at, time.Time{})
	foreign.Project = "b"
	d.suppress(append(all, entry(mail, "complaint", at.Add(5*time.Second), time.Time{}), over, foreign)...)

	f, seen := store.SuppressionFilter{Project: "a", Limit: 3}, map[store.Address]bool{}
	last := at.Add(time.Hour)
	for page := d.listed(f); len(page) > 0; page = d.listed(f) {
		for i := range page {
			if page[i].At.After(last) {
				t.Error("not newest first")
			}
			last = page[i].At
			seen[store.Address{Channel: page[i].Channel, Hash: page[i].Address}] = true
		}
		f.Before = &page[len(page)-1]
	}
	if len(seen) != 8 || seen[phone("+15005550009")] {
		t.Errorf("%d entries in all pages, want 8", len(seen))
	}
	for name, c := range map[string]struct {
		f    store.SuppressionFilter
		want int
	}{
		"a channel":                     {store.SuppressionFilter{Channel: notify.Email}, 1},
		"a reason":                      {store.SuppressionFilter{Reason: store.ReasonStop}, 1},
		"an address":                    {store.SuppressionFilter{Addresses: [][16]byte{phone("+15005550003").Hash}}, 1},
		"an address of another channel": {store.SuppressionFilter{Channel: notify.Email, Addresses: [][16]byte{phone("+15005550003").Hash}}, 0},
		"an address whose entry ended":  {store.SuppressionFilter{Addresses: [][16]byte{over.Address}}, 0},
	} {
		c.f.Project = "a"
		if got := d.listed(c.f); len(got) != c.want {
			t.Errorf("%s: %d entries, want %d", name, len(got), c.want)
		}
	}
	got, err := d.Suppressed(t.Context(), "a", []store.Address{mail, phone("+15005550002"), phone("+15005550008"), {Channel: notify.WhatsApp, Hash: mail.Hash}})
	if err != nil || len(got) != 2 {
		t.Errorf("%d of the named are on the list, %v", len(got), err)
	}
}

func TestTheHistoryIsReadInPagesAndKeptAsLongAsNotifications(t *testing.T) {
	t.Parallel()
	d := open(t)
	at := now()
	a, b := phone("+15005550006"), phone("+15005550007")
	d.suppress(entry(a, "manual", at.Add(-2*day), time.Time{}))
	d.suppress(entry(b, "manual", at, time.Time{}))
	read := func(f store.SuppressionFilter, before int64) []store.SuppressionEvent {
		t.Helper()
		f.Project, f.Limit = "a", 1
		events, err := d.SuppressionHistory(t.Context(), f, before)
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
	newest := read(store.SuppressionFilter{}, 0)
	if len(newest) != 1 || newest[0].Address != b.Hash {
		t.Fatalf("first page %+v", newest)
	}
	if older := read(store.SuppressionFilter{}, newest[0].ID); len(older) != 1 || older[0].Address != a.Hash || !older[0].At.Equal(at.Add(-2*day)) {
		t.Errorf("second page %+v", older)
	}
	if got := read(store.SuppressionFilter{Addresses: [][16]byte{a.Hash}}, 0); len(got) != 1 || got[0].Address != a.Hash {
		t.Errorf("of an address %+v", got)
	}
	if got := read(store.SuppressionFilter{Channel: notify.Email}, 0); len(got) != 0 {
		t.Errorf("of another channel %+v", got)
	}
	if _, err := d.Expire(t.Context(), at.Add(-day), at, 100); err != nil {
		t.Fatal(err)
	}
	if got := d.told("a"); len(got) != 1 {
		t.Errorf("after retention: %v", got)
	}
	if got := d.listed(store.SuppressionFilter{Project: "a"}); len(got) != 2 {
		t.Errorf("retention took entries: %+v", got)
	}
}
