package sandbox

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTheLogIsAWindowOnEverythingAdded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 8).Draw(t, "capacity")
		l := newMessageLog(capacity)
		var model []int64 // numbers that should be there, oldest first
		var next int64
		t.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				next++
				l.add(&entry{provider: twilio, answer: Answer{ID: strconv.FormatInt(next, 10)}})
				model = append(model, next)
				model = model[max(0, len(model)-capacity):]
			},
			"clear": func(*rapid.T) {
				l.clear()
				model = nil
			},
			"": func(t *rapid.T) {
				var got []int64
				for _, e := range l.all() {
					got = append(got, e.seq)
				}
				if !slices.Equal(got, model) {
					t.Fatalf("log has %v, want %v", got, model)
				}
				for seq := int64(0); seq <= next+1; seq++ {
					want := slices.Contains(model, seq)
					if e := l.numbered(seq); (e != nil) != want || (e != nil && e.seq != seq) {
						t.Fatalf("number %d is %v", seq, e)
					}
					if (l.bySID(strconv.FormatInt(seq, 10)) != nil) != want {
						t.Fatalf("sid %d is known: %v", seq, !want)
					}
				}
			},
		})
	})
}

func TestTheLogIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	l := newMessageLog(100)
	for range 20 {
		l.add(&entry{raw: make([]byte, maxMail)})
	}
	if n := len(l.all()); n != maxStored/(maxMail+512) {
		t.Errorf("%d mails of the largest size are kept", n)
	}
}

func TestCallbacksTellEveryStageAsOftenAsAsked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := course{repeat: rapid.IntRange(1, 4).Draw(t, "repeat"), shuffle: rapid.Bool().Draw(t, "shuffle")}
		for i := range rapid.IntRange(0, 3).Draw(t, "stages") {
			c.stages = append(c.stages, stage{status: strconv.Itoa(i)})
		}
		calls := c.calls()
		inOrder := slices.IsSortedFunc(calls, func(a, b stage) int { return strings.Compare(a.status, b.status) })
		if shuffled := c.shuffle && len(c.stages) > 1; shuffled == inOrder {
			t.Fatalf("shuffle %v gives %v", c.shuffle, calls)
		}
		for _, st := range c.stages {
			n := 0
			for _, call := range calls {
				if call == st {
					n++
				}
			}
			if n != c.repeat {
				t.Fatalf("%v comes %d times of %d", st, n, c.repeat)
			}
		}
	})
}

func TestRecentlyForgetsTheOldest(t *testing.T) {
	t.Parallel()
	r := newRecently(2)
	for _, step := range []struct {
		key  string
		want bool
	}{{"a", true}, {"a", false}, {"b", true}, {"c", true}, {"b", false}, {"a", true}, {"c", false}, {"b", true}} {
		if got := r.first(step.key); got != step.want {
			t.Errorf("%s is new: %v, want %v", step.key, got, step.want)
		}
	}
}

func TestSlackStampsAreUniqueAndRise(t *testing.T) {
	t.Parallel()
	var c slackClock
	now := time.Unix(1_700_000_000, 0)
	if got := c.next(now); got != "1700000000.000000" {
		t.Errorf("got %s", got)
	}
	if got := c.next(now); got != "1700000000.000001" {
		t.Errorf("the same instant again: %s", got)
	}
	if got := c.next(now.Add(-time.Hour)); got != "1700000000.000002" {
		t.Errorf("a clock that went back: %s", got)
	}
}

func TestSMTPRepliesReadTheirEnhancedCode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"4.7.1 greylisted": "4.7.1 greylisted", "try later": "4.0.0 try later", "": "4.0.0 the sandbox refuses",
		"4.7.x odd": "4.0.0 4.7.x odd", "4.7.1 two\r\n250 lines": "4.7.1 two  250 lines",
	} {
		e := smtpReply(451, text)
		got := strconv.Itoa(e.EnhancedCode[0]) + "." + strconv.Itoa(e.EnhancedCode[1]) + "." + strconv.Itoa(e.EnhancedCode[2]) + " " + e.Message
		if got != want || e.Code != 451 {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}

func TestSameRecipientComparesAsEachProviderNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		provider, want, got string
		same                bool
	}{
		{twilio, "+14155550100", "+14155550100", true},
		{twilio, "+14155550100", "whatsapp:+14155550100", false},
		{meta, "14155550100", "+14155550100", true},
		{smtpProvider, "Ana@Example.com", "ana@example.com", true},
		{fcm, "Token", "token", false},
		{slack, "ops", "#ops", true},
		{webhook, "http://sandbox:8090/webhook/a", "http://127.0.0.1:8090/webhook/a", true},
		{webhook, "/webhook/a", "http://127.0.0.1:8090/webhook/a", true},
		{webhook, "/webhook/b", "http://127.0.0.1:8090/webhook/a", false},
		{webPush, "ana", "http://127.0.0.1:8090/webpush/ana", true},
	} {
		if same := sameRecipient(tt.provider, tt.want, tt.got); same != tt.same {
			t.Errorf("%s: %q and %q are the same: %v", tt.provider, tt.want, tt.got, same)
		}
	}
}

func FuzzReadMail(f *testing.F) {
	f.Add([]byte("Subject: =?utf-8?q?St=C3=B6rung?=\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\nhi\r\n--x--\r\n"))
	f.Add([]byte("Content-Type: multipart/mixed\r\n\r\n--\r\n"))
	f.Add([]byte("Content-Transfer-Encoding: base64\r\n\r\n!!"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := (&entry{provider: smtpProvider, raw: raw}).view()
		if len(m.Attachments) > maxParts {
			t.Errorf("%d attachments", len(m.Attachments))
		}
	})
}

func FuzzOpenWebPush(f *testing.F) {
	f.Add(make([]byte, 16+4+1+65+17))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		if plain, err := openWebPush("ana", sealed); err == nil {
			t.Errorf("what nobody sealed opens as %q", plain)
		}
	})
}
