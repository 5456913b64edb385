//go:build unix

package localpg

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestChoosePrefersTheVersionOfTheData(t *testing.T) {
	found := []programs{{dir: "/a", major: 17}, {dir: "/b", major: 15}}
	tests := []struct {
		name    string
		major   int
		want    string
		wantErr string
	}{
		{"new data", 0, "/a", ""},
		{"data of the first", 17, "/a", ""},
		{"data of the second", 15, "/b", ""},
		{"data of none", 14, "", "made by PostgreSQL 14, and this machine has 17, 15: install PostgreSQL 14"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := choose(found, test.major)
			if got.dir != test.want {
				t.Errorf("chose %q, want %q", got.dir, test.want)
			}
			if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("error %v, want %q", err, test.wantErr)
			}
		})
	}
	if _, err := choose(nil, 0); !errors.Is(err, ErrNoPrograms) {
		t.Errorf("with nothing installed: %v, want ErrNoPrograms", err)
	}
}

func TestNewestFirstComparesNumbers(t *testing.T) {
	root := t.TempDir()
	for _, version := range []string{"9", "17", "15"} {
		if err := os.MkdirAll(root+"/v/"+version+"/bin", 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got := newestFirst(root + "/v/*/bin")
	want := []string{root + "/v/17/bin", root + "/v/15/bin", root + "/v/9/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestComplaintIsTheLastFatalMessage(t *testing.T) {
	log := "2026-11-30 09:00:00 UTC [1] LOG:  starting\n2026-11-30 09:00:00 UTC [1] FATAL:  could not open file\nHINT: look\n"
	if got, want := complaintIn(log), "could not open file"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := complaintIn("one\ntwo\n"), "two"; got != want {
		t.Errorf("without a mark: got %q, want the last line %q", got, want)
	}
}
