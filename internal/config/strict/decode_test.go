package strict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

type inner struct {
	Names  []string          `yaml:"names"`
	Labels map[string]string `yaml:"labels"`
}

type shape struct {
	Text    string        `yaml:"text"`
	Whole   int           `yaml:"whole"`
	Small   uint8         `yaml:"small"`
	Part    float64       `yaml:"part"`
	Flag    bool          `yaml:"flag"`
	Wait    time.Duration `yaml:"wait"`
	Token   secret.Value  `yaml:"token"`
	Inner   inner         `yaml:"inner"`
	Maybe   *inner        `yaml:"maybe"`
	Many    []inner       `yaml:"many"`
	Hidden  string
	Skipped string `yaml:"-"`
}

func decode(t *testing.T, text string, into *shape) strict.Problems {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return strict.Decode(&doc, "at", into)
}

func TestDecodeSetsEveryKindOfField(t *testing.T) {
	t.Setenv("STRICT_TEST_TOKEN", "hush")
	const text = `
text: +15005550006
whole: -3
small: 200
part: 1.5
flag: true
wait: 90s
token: {env: STRICT_TEST_TOKEN}
inner: {names: [a, b], labels: {k: v}}
maybe: {names: [c]}
many: [{names: [d]}, {}]
`
	var got shape
	if problems := decode(t, text, &got); len(problems) > 0 {
		t.Fatal(problems)
	}
	want := shape{
		Text: "+15005550006", Whole: -3, Small: 200, Part: 1.5, Flag: true, Wait: 90 * time.Second, Token: secret.New("hush"),
		Inner: inner{Names: []string{"a", "b"}, Labels: map[string]string{"k": "v"}},
		Maybe: &inner{Names: []string{"c"}}, Many: []inner{{Names: []string{"d"}}, {}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(secret.Value{})); diff != "" {
		t.Error(diff)
	}
}

func TestAKeyWithoutAValueKeepsTheDefault(t *testing.T) {
	got := shape{Whole: 7, Token: secret.New("kept")}
	if problems := decode(t, "whole:\ntoken: ~\ninner: null\n", &got); len(problems) > 0 {
		t.Fatal(problems)
	}
	if got.Whole != 7 || got.Token.Reveal() != "kept" {
		t.Errorf("got %+v", got)
	}
}

func TestAnchorsAndMergeKeysAreFollowed(t *testing.T) {
	const text = `
inner: &base {names: [a], labels: {k: v}}
maybe: {<<: *base, names: [b]}
many: [*base, {<<: [{names: [first]}, *base]}]
`
	var got shape
	if problems := decode(t, text, &got); len(problems) > 0 {
		t.Fatal(problems)
	}
	if diff := cmp.Diff(&inner{Names: []string{"b"}, Labels: map[string]string{"k": "v"}}, got.Maybe); diff != "" {
		t.Error(diff)
	}
	want := []inner{{Names: []string{"a"}, Labels: map[string]string{"k": "v"}}, {Names: []string{"first"}, Labels: map[string]string{"k": "v"}}}
	if diff := cmp.Diff(want, got.Many); diff != "" {
		t.Error(diff)
	}
}

func TestEachProblemHasItsPathAndLineAndNoValue(t *testing.T) {
	const text = `
text: [hush]
whole: hush
whole: 2
small: 300
part: hush
flag: yes
wait: 5
token: {envy: hush}
inner: {nams: [hush], names: hush, labels: [hush]}
many: [hush, {names: [{hush: hush}]}]
Hidden: hush
? [hush]
: hush
`
	var got shape
	problems := decode(t, text, &got)
	want := []string{
		"at.whole (line 4): is given twice",
		"at (line 13): a key must be a name",
		"at.text (line 2): must be a single value",
		"at.small (line 5): must be a whole number, 0 or more",
		"at.part (line 6): must be a number",
		"at.flag (line 7): must be true or false",
		`at.wait (line 8): must be a duration such as "90s" or "2m30s"`,
		"at.token (line 9): a secret is a string, or {env: NAME}, or {file: PATH}",
		"at.inner.nams (line 10): unknown setting; did you mean names?",
		"at.inner.names (line 10): must be a list",
		"at.inner.labels (line 10): must be a mapping of settings",
		"at.many[0] (line 11): must be a mapping of settings",
		"at.many[1].names[0] (line 11): must be a single value",
		"at.Hidden (line 12): unknown setting; it is one of flag, inner, many, maybe, part, small, text, token, wait, whole",
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), problems.Err().Error()); diff != "" {
		t.Error(diff)
	}
}

func TestAMergeKeyThatHoldsItselfEnds(t *testing.T) {
	var got shape
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte("inner: &a\n  <<: *a\n  names: [x]\n"), &doc); err != nil {
		t.Fatal(err)
	}
	if problems := strict.Decode(&doc, "", &got); len(problems) == 0 {
		t.Error("no problem was reported")
	}
}

func TestLeavesAreTheSettingsThatOneTextCanGive(t *testing.T) {
	v := struct {
		Top  shape `yaml:"top"`
		Last int   `yaml:"last"`
	}{}
	var paths []string
	for _, l := range strict.Leaves(&v) {
		paths = append(paths, l.Path)
		if l.Secret != (l.Path == "top.token") {
			t.Errorf("%s: Secret = %v", l.Path, l.Secret)
		}
		if l.Path == "last" {
			if err := l.Set("12"); err != nil {
				t.Error(err)
			}
		}
	}
	want := []string{"top.text", "top.whole", "top.small", "top.part", "top.flag", "top.wait", "top.token", "last"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Error(diff)
	}
	if v.Last != 12 {
		t.Errorf("last = %d after Set, want 12", v.Last)
	}
}
