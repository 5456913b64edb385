package notify_test

import (
	"slices"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestChannelsStandInTheOrderOfTheDefaultChain(t *testing.T) {
	want := []notify.Channel{"push", "sms", "whatsapp", "email", "slack", "webhook"}
	if got := notify.Channels(); !slices.Equal(got, want) {
		t.Errorf("channels %v, want %v", got, want)
	}
	for _, c := range want {
		if !c.Valid() {
			t.Errorf("%s is not valid", c)
		}
	}
	for _, c := range []notify.Channel{"", "SMS", "voice"} {
		if c.Valid() {
			t.Errorf("%q is valid", c)
		}
	}
}

// The numbers are River's: 1 runs first.
func TestPrioritiesHaveNamesAndNumbers(t *testing.T) {
	for number, name := range map[notify.Priority]string{1: "critical", 2: "high", 3: "normal", 4: "low"} {
		if number.String() != name {
			t.Errorf("priority %d is %q, want %q", number, number, name)
		}
		if got, ok := notify.ParsePriority(name); !ok || got != number {
			t.Errorf("%q is priority %d, %t; want %d", name, got, ok, number)
		}
		var read notify.Priority
		text, err := number.MarshalText()
		if err == nil {
			err = read.UnmarshalText(text)
		}
		if err != nil || read != number {
			t.Errorf("%q is read as %v, %v", text, read, err)
		}
	}
	if p, ok := notify.ParsePriority(""); !ok || p != notify.Normal {
		t.Errorf("without a priority: %v, %t", p, ok)
	}
	for _, s := range []string{"High", "urgent", "1", "priority(9)"} {
		p := notify.Low
		if err := p.UnmarshalText([]byte(s)); err == nil || p != notify.Low {
			t.Errorf("%q is read as %v", s, p)
		}
	}
	if got := notify.Priority(9).String(); got != "priority(9)" {
		t.Errorf("a number without a name is %q", got)
	}
}
