package doctest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/doctest"
)

func TestBlocksAreFoundWithWhatIsSaidOfThem(t *testing.T) {
	t.Parallel()
	const document = "# Title\n\n```sh\necho 1\n\necho 2\n```\n\n1. A list:\n\n   <!-- exits 1 -->\n\n   ```console\n   $ false\n   ```\n" +
		"\n<!-- a remark -->\n<!-- not run: needs a cluster -->\n```yaml\na: b\n```\n\n<!-- schema: Thing -->\n````json\n{\"a\": \"```\"}\n````\n"
	got, err := doctest.Blocks(document)
	if err != nil {
		t.Fatal(err)
	}
	want := []doctest.Block{
		{Line: 3, Language: "sh", Text: "echo 1\n\necho 2\n"},
		{Line: 13, Language: "console", Text: "$ false\n", Exits: 1},
		{Line: 19, Language: "yaml", Text: "a: b\n", NotRun: "needs a cluster"},
		{Line: 24, Language: "json", Text: "{\"a\": \"```\"}\n", Schema: "Thing"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, wrong := range []string{"```sh\necho", "<!-- exits one -->\n```sh\n```", "<!-- not run: x -->\nText\n\n```sh\n```"} {
		if got, err := doctest.Blocks(wrong); err == nil {
			t.Errorf("%q is taken as %+v", wrong, got)
		}
	}
}

func TestASessionIsSplitAtItsPrompts(t *testing.T) {
	t.Parallel()
	quotesClosed := func(text string) bool { return strings.Count(text, "'")%2 == 0 }
	got, err := doctest.Commands("$ id=$(make)\n$ post '{\n  \"a\": 1}'\n{\"b\": 2}\n\n$ follow\none\n…\n^C\n", quotesClosed)
	if err != nil {
		t.Fatal(err)
	}
	want := []doctest.Command{
		{Line: "id=$(make)"},
		{Line: "post '{\n  \"a\": 1}'", Shows: "{\"b\": 2}\n"},
		{Line: "follow", Shows: "one\n…", Interrupted: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, wrong := range []string{"echo 1\n", "$ echo '\n"} {
		if got, err := doctest.Commands(wrong, quotesClosed); err == nil {
			t.Errorf("%q is taken as %+v", wrong, got)
		}
	}
}

func TestMatchTellsWhatIsShownFromWhatIsNot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, shown, printed, wrong string // wrong is part of what is said of it
	}{
		{"equal JSON", `{"a": 1, "b": [true, null]}`, `{"b":[true,null],"a":1}`, ""},
		{"another value", `{"a": {"b": 1}}`, `{"a":{"b":2}}`, "/a/b is 2, want 1"},
		{"another type", `{"a": {"b": 1}}`, `{"a":[1]}`, "/a is"},
		{"a member that is not shown", `{"a": 1}`, `{"a":1,"b":2}`, "/b is there"},
		{"a member that is missing", `{"a": 1, "b": 2}`, `{"a":1}`, "/b is missing"},
		{"further members", `{"a": 1, …}`, `{"a":1,"b":2}`, ""},
		{"nothing but further members", `{…}`, `{"a":1}`, ""},
		{"a member missing beside further ones", `{"a": 1, …}`, `{"b":2}`, "/a is missing"},
		{"any value", `{"a": …}`, `{"a":{"b":[1]}}`, ""},
		{"any value, and further members", `{"a": …, …}`, `{"a":1,"b":2}`, ""},
		{"further elements", `[1, …]`, `[1,2,3]`, ""},
		{"no further elements", `[1, …]`, `[1]`, ""},
		{"an element too many", `[1]`, `[1,2]`, "has 2 elements"},
		{"an element too few", `[1, 2, …]`, `[1]`, "has 1 elements"},
		{"part of a string", `{"id": "SM…"}`, `{"id":"SM12"}`, ""},
		{"another part of a string", `{"id": "SM…"}`, `{"id":"XX12"}`, "/id is"},
		{"signs in a string", `{"a": "…, {\"x\": …}"}`, `{"a":"b, {\"x\": 1}"}`, ""},
		{"another instant", `{"at": "2026-12-01T08:00:00Z"}`, `{"at":"2027-01-02T03:04:05.678Z"}`, ""},
		{"no instant", `{"at": "2026-12-01T08:00:00Z"}`, `{"at":"soon"}`, "/at is soon"},
		{"no string", `{"at": "2026-12-01T08:00:00Z"}`, `{"at":null}`, "/at is <nil>"},
		{"another id", `{"id": "0193a1b2-0000-7000-8000-000000000000"}`, `{"id":"01a22d35-77e2-73c5-8120-07a69a3e80b5"}`, ""},
		{"no id", `{"id": "0193a1b2-0000-7000-8000-000000000000"}`, `{"id":"7"}`, "/id is 7"},
		{"lines of JSON", "{\"a\": 1}\n{\"a\": …}", `{"a":1}` + "\n" + `{"a":2}`, ""},
		{"a line of JSON too many", `{"a": 1}`, `{"a":1}` + "\n" + `{"a":2}`, "2 values, want 1"},
		{"no JSON", `{"a": 1}`, `error: x`, "no JSON"},
		{"equal lines", "push   failed\n\nsms  sent\n", "push failed\nsms        sent", ""},
		{"another line", "push failed\nsms sent", "push failed\nsms failed", "line 2"},
		{"another duration", "sent in 4 ms, 1 call", "sent in 12.5 ms, 1 call", ""},
		{"another time of day", "08:00:00 sent", "16:06:48 sent", ""},
		{"another number", "sent in 4 ms, 1 call", "sent in 4 ms, 2 calls", "line 1"},
		{"the rest of a line", "Key dsp_…  (also in a file)", "Key dsp_ABC (also in a file)", ""},
		{"any lines between", "a\n…\nc", "a\nb\nb\nc", ""},
		{"any lines at the end", "a\n…", "a\nb", ""},
		{"any lines, and what does not follow", "a\n…\nd", "a\nb\nc", "line 3"},
		{"a line too many", "a", "a\nb", "more was printed"},
		{"a line too few", "a\nb", "a", "line 2"},
		{"an expression is no pattern", "a.c", "abc", "line 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := doctest.Match(c.shown, c.printed)
			switch {
			case err == nil && c.wrong != "":
				t.Errorf("%q is taken for %q", c.printed, c.shown)
			case err != nil && (c.wrong == "" || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("it says %q, want %q", err, c.wrong)
			}
		})
	}
}
