package sms_test

import (
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/channels/sms"
)

func TestSegmentsAtTheEdges(t *testing.T) {
	x := strings.Repeat
	for _, c := range []struct {
		name, text string
		n          int
		encoding   string
	}{
		{"nothing", "", 0, sms.GSM7},
		{"one letter", "a", 1, sms.GSM7},
		{"a full GSM message", x("a", 160), 1, sms.GSM7},
		{"one septet more", x("a", 161), 2, sms.GSM7},
		{"two full parts", x("a", 306), 2, sms.GSM7},
		{"three parts", x("a", 307), 3, sms.GSM7},
		{"the most that Twilio takes", x("a", 1600), 11, sms.GSM7},
		{"Greek capitals and accents of the alphabet", x("ΔΦàÉ¿", 32), 1, sms.GSM7},
		{"extension characters count twice", x("€", 80), 1, sms.GSM7},
		{"one extension character too many", x("€", 81), 2, sms.GSM7},
		{"an escape sequence is not split", x("a", 152) + "€" + x("a", 152), 3, sms.GSM7},
		{"and fills a part where it fits", x("a", 151) + "€" + x("a", 153), 2, sms.GSM7},
		{"a full UCS-2 message", x("ы", 70), 1, sms.UCS2},
		{"one unit more", x("ы", 71), 2, sms.UCS2},
		{"two full UCS-2 parts", x("ы", 134), 2, sms.UCS2},
		{"three UCS-2 parts", x("ы", 135), 3, sms.UCS2},
		{"one foreign character switches the whole", x("a", 160) + "ы", 3, sms.UCS2},
		{"small c with cedilla is not in the alphabet", "ç", 1, sms.UCS2},
		{"a curly quote is not either", x("a", 70) + "’", 2, sms.UCS2},
		{"surrogate pairs count twice", x("😀", 35), 1, sms.UCS2},
		{"one pair too many", x("😀", 36), 2, sms.UCS2},
		{"a pair is not split", x("😀", 66), 2, sms.UCS2},
		{"so that a part holds 33", x("😀", 67), 3, sms.UCS2},
		{"invalid UTF-8 takes a replacement character", "a\xff", 1, sms.UCS2},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, encoding := sms.Segments(c.text)
			if n != c.n || encoding != c.encoding {
				t.Errorf("Segments = %d, %s, want %d, %s", n, encoding, c.n, c.encoding)
			}
		})
	}
}

// alphabet has characters of one and two septets, of the BMP and beyond it.
var alphabet = []rune("aZ0 @\n€[~ΩñÇçы’中😀🏳")

func text(t *rapid.T, label string) string {
	runes := rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 400).Draw(t, label)
	if rapid.Bool().Draw(t, label+" gsm only") {
		gsm := runes[:0]
		for _, r := range runes {
			if _, encoding := sms.Segments(string(r)); encoding == sms.GSM7 {
				gsm = append(gsm, r)
			}
		}
		runes = gsm
	}
	return string(runes)
}

func TestSegmentsNeverFallWhenTextIsAdded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := text(t, "a"), text(t, "b")
		na, ea := sms.Segments(a)
		nb, eb := sms.Segments(b)
		n, e := sms.Segments(a + b)
		if n < na || n < nb {
			t.Errorf("%d and %d segments make %d", na, nb, n)
		}
		if want := ea == sms.UCS2 || eb == sms.UCS2; (e == sms.UCS2) != want {
			t.Errorf("%s and %s make %s", ea, eb, e)
		}
	})
}

func TestSegmentsOfOneRepeatedCharacterFollowTheArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(alphabet).Draw(t, "rune")
		n := rapid.IntRange(1, 1600).Draw(t, "n")
		got, encoding := sms.Segments(strings.Repeat(string(r), n))
		size, single, part := 1, 160, 153
		if encoding == sms.UCS2 {
			size, single, part = len(utf16.Encode([]rune{r})), 70, 67
		} else if strings.ContainsRune("€[~", r) {
			size = 2
		}
		want := 1
		if n*size > single {
			each := part / size
			want = (n + each - 1) / each
		}
		if got != want {
			t.Errorf("%d times %q: %d segments, want %d", n, r, got, want)
		}
	})
}

func FuzzSegmentsHoldTheText(f *testing.F) {
	f.Add("hello")
	f.Add(strings.Repeat("a", 152) + "€")
	f.Add(strings.Repeat("😀", 40))
	f.Add("\xff\x00")
	f.Fuzz(func(t *testing.T, text string) {
		n, encoding := sms.Segments(text)
		runes := utf8.RuneCountInString(text)
		single, part := 160, 153
		units := runes // each takes one septet or more
		if encoding == sms.UCS2 {
			single, part = 70, 67
			units = len(utf16.Encode([]rune(text)))
		}
		// A character has at most two units, so that at most one is lost to each
		// part and a part holds at least half as many characters.
		least := (units + part - 1) / part
		if units <= single {
			least = min(1, units)
		}
		if most := (runes*2 + part - 2) / (part - 1); n < least || n > max(most, 1) || (n == 0) != (text == "") {
			t.Errorf("%d units in %d segments of %s, want %d to %d", units, n, encoding, least, most)
		}
	})
}
