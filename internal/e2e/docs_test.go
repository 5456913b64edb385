//go:build unix

package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/doctest"
)

const root = "../.."

// How a block is tested depends on its language. All blocks of a document share a
// shell, in the folder of a running `make run`, so that one uses what another set.
//
//	sh       runs, and each command must succeed
//	console  commands after "$ ", and what they print; ^C at the end interrupts
//	sql      runs in psql on the service's database; :'id' is the shell's $id
//	go       stands so in a file of client/ or examples/, whose tests run it
//	json     fits the schema of `<!-- schema: NAME -->`
//	yaml     is a whole configuration, or part of one, to `dispatcher config check`
//
// What the API answers must fit its description, and be refused only where the
// document shows the status. Of anything else a comment before it must say why it
// is not run: `<!-- not run: WHY -->`.
func TestEveryExampleInTheDocumentsRuns(t *testing.T) { //nolint:tparallel // the documents share a service, whose state they show
	t.Parallel()
	for _, program := range []string{"bash", "psql", "jq", "curl"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") == "" {
			t.Skip(err)
		}
	}
	d := startDev(t, t.TempDir())
	contract := readContract(t)
	seen := newWitness(t, d.url, contract)
	code := examplesInGo(t)
	ran := 0
	for _, path := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := doctest.Blocks(string(text))
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if len(blocks) == 0 {
			continue
		}
		t.Run(path, func(t *testing.T) {
			e := &examples{terminal: newTerminal(t, d, seen.url), seen: seen, contract: contract, code: code}
			for _, b := range blocks {
				if b.NotRun != "" {
					continue
				}
				ran++
				if err := e.try(b); err != nil {
					t.Errorf("%s:%d: %v", path, b.Line, err)
					return // what follows may need it
				}
			}
		})
	}
	if ran < 30 {
		t.Errorf("only %d examples ran", ran)
	}
}

// documents are the paths of all Markdown files.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir() && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".") && path != root):
			return fs.SkipDir
		case filepath.Ext(name) == ".md":
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			paths = append(paths, relative)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"README.md", "docs/api.md", "docs/enqueue.md", "docs/operations.md"} {
		if !slices.Contains(paths, path) {
			t.Errorf("%s is not among the documents", path)
		}
	}
	return paths
}

// examplesInGo are the lines of the programs and examples that tests run.
func examplesInGo(t *testing.T) string {
	t.Helper()
	var code strings.Builder
	for _, pattern := range []string{"client/*_test.go", "examples/*/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.WriteString("\n" + trimLines(string(text)))
		}
	}
	return code.String()
}

func trimLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n") + "\n"
}

// examples are those of one document.
type examples struct {
	*terminal
	seen     *witness
	contract *contract
	code     string
}

func (e *examples) try(b doctest.Block) error {
	switch b.Language {
	case "sh":
		return e.script(b.Text, b.Exits)
	case "console":
		return e.session(b)
	case "sql":
		path, err := e.write("block.sql", b.Text)
		if err != nil {
			return err
		}
		if err := placeholders(b.Text); err != nil {
			return err
		}
		return e.script(`psql "$DATABASE_URL" -X -q -v ON_ERROR_STOP=1 ${id:+-v id="$id"} -f `+path, b.Exits)
	case "yaml":
		path, err := e.write("block.yaml", b.Text)
		if err != nil {
			return err
		}
		return e.script("dispatcher config check "+path, b.Exits)
	case "go":
		if !strings.Contains(e.code, "\n"+trimLines(b.Text)) {
			return errors.New("these lines are in no example of client/ or examples/: put them there, where a test runs them")
		}
		return nil
	case "json":
		if b.Schema == "" {
			return errors.New("show the command and its answer as console, or say what it is: <!-- schema: NAME -->")
		}
		return e.contract.fits("/components/schemas/"+b.Schema, []byte(b.Text))
	}
	return fmt.Errorf("a block of language %q: write it as one that is tested, or say why not: <!-- not run: WHY -->", b.Language)
}

// placeholders refuses what only a person could fill in.
func placeholders(typed string) error {
	if strings.Contains(typed, doctest.Rest) {
		return fmt.Errorf("%s in %q: use a variable that an earlier block sets", doctest.Rest, typed)
	}
	return nil
}

// script runs lines that must succeed one by one.
func (e *examples) script(text string, exits int) error {
	r, err := e.run(text, nil)
	if err != nil {
		return err
	}
	switch {
	case exits != 0 && r.code != exits:
		return fmt.Errorf("exit code %d, want %d: %s", r.code, exits, r.printed)
	case exits == 0 && r.failed != "":
		return fmt.Errorf("failed: %s: %s", r.failed, r.printed)
	}
	return e.judge("")
}

// session runs commands and compares what they print.
func (e *examples) session(b doctest.Block) error {
	commands, err := doctest.Commands(b.Text, complete)
	if err != nil {
		return err
	}
	for i, c := range commands {
		var enough func(printed string) error
		if c.Interrupted {
			enough = func(printed string) error { return doctest.Match(c.Shows, printed) }
		}
		r, err := e.run(c.Line, enough)
		if err != nil {
			return err
		}
		exits := 0
		if i == len(commands)-1 {
			exits = b.Exits
		}
		if r.code != exits && !c.Interrupted {
			return fmt.Errorf("%s\nexit code %d, want %d: %s", c.Line, r.code, exits, r.printed)
		}
		if c.Shows != "" && !c.Interrupted { // which has been compared
			if err := doctest.Match(c.Shows, r.printed); err != nil {
				return fmt.Errorf("%s\n%w; it printed:\n%s", c.Line, err, r.printed)
			}
		}
		if err := e.judge(c.Shows); err != nil {
			return fmt.Errorf("%s\n%w; it printed:\n%s", c.Line, err, r.printed)
		}
	}
	return nil
}

// judge looks at what the API answered since the last time.
func (e *examples) judge(shown string) error {
	faults, refusals := e.seen.saw()
	for _, status := range refusals {
		if !regexp.MustCompile(`\b` + strconv.Itoa(status) + `\b`).MatchString(shown) {
			faults = append(faults, fmt.Errorf("the API answered %d, and the document does not show that", status))
		}
	}
	return errors.Join(faults...)
}

// complete reports whether a shell would run a text, not wait for the rest.
func complete(text string) bool {
	if strings.HasSuffix(text, `\`) {
		return false
	}
	cmd := exec.Command("bash", "-n")
	cmd.Stdin = strings.NewReader(text + "\n")
	out, err := cmd.CombinedOutput() // an open here-document is only a warning
	return err == nil && len(out) == 0
}
