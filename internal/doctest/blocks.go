// Package doctest reads the examples in Markdown documents and compares what
// commands print with what the documents show. The tests of whole processes run
// the examples; nothing of this reaches the program.
package doctest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Block is a fenced block of code.
type Block struct {
	Line     int    // where the fence is, from 1
	Language string // the fence's info string
	Text     string
	// NotRun is why it is not run: `<!-- not run: why -->` stands before it.
	NotRun string
	// Exits is the exit code that its last command ends with: `<!-- exits 1 -->`.
	Exits int
	// Schema is the schema of the API's description that JSON fits:
	// `<!-- schema: NotificationRequest -->`.
	Schema string
}

var (
	fence     = regexp.MustCompile("^( *)(```+)([^`]*)$")
	directive = regexp.MustCompile(`^<!-- (not run|exits|schema):? (.*?) -->$`)
)

// Blocks returns the blocks of a document in order. A comment that says how to
// take a block stands right before it, or before another such comment.
func Blocks(markdown string) ([]Block, error) {
	var blocks []Block
	var next Block
	said := false // a comment waits for its block
	lines := strings.Split(markdown, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if m := directive.FindStringSubmatch(line); m != nil {
			said = true
			if err := next.take(m[1], m[2]); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			continue
		}
		open := fence.FindStringSubmatch(lines[i])
		switch {
		case open != nil:
		case line == "":
			continue
		case said:
			return nil, fmt.Errorf("line %d: a comment says how to take a block, and none follows", i+1)
		default:
			continue
		}
		end := closing(lines, i+1, open[2])
		if end < 0 {
			return nil, fmt.Errorf("line %d: the block has no end", i+1)
		}
		next.Line, next.Language, next.Text = i+1, strings.TrimSpace(open[3]), unindent(lines[i+1:end], open[1])
		blocks = append(blocks, next)
		next, said, i = Block{}, false, end
	}
	return blocks, nil
}

func (b *Block) take(name, value string) (err error) {
	switch name {
	case "not run":
		b.NotRun = value
	case "schema":
		b.Schema = value
	case "exits":
		if b.Exits, err = strconv.Atoi(value); err != nil {
			return fmt.Errorf("the exit code %q is no number", value)
		}
	}
	return nil
}

func closing(lines []string, from int, ticks string) int {
	for i := from; i < len(lines); i++ {
		if strings.TrimSpace(lines[i]) == ticks {
			return i
		}
	}
	return -1
}

func unindent(lines []string, by string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.TrimPrefix(line, by))
		b.WriteByte('\n')
	}
	return b.String()
}

// Command is one command of a session in a terminal.
type Command struct {
	Line string // what was typed; several lines where a quote or document is open
	// Shows is what it prints, empty where the document does not say.
	Shows string
	// Interrupted says that Ctrl-C ends it, which shows as ^C in the last line.
	Interrupted bool
}

// Commands splits a session into commands and what they print. complete reports
// whether a shell would run a text, or wait for the rest of it.
func Commands(session string, complete func(text string) bool) ([]Command, error) {
	var commands []Command
	lines := strings.Split(strings.TrimSuffix(session, "\n"), "\n")
	for i := 0; i < len(lines); {
		typed, ok := strings.CutPrefix(lines[i], "$ ")
		if !ok {
			return nil, fmt.Errorf("line %d of the session begins with no prompt: %q", i+1, lines[i])
		}
		for i++; !complete(typed); i++ {
			if i == len(lines) {
				return nil, fmt.Errorf("the command has no end: %q", typed)
			}
			typed += "\n" + lines[i]
		}
		c := Command{Line: typed}
		var shown []string
		for ; i < len(lines) && !strings.HasPrefix(lines[i], "$ "); i++ {
			shown = append(shown, lines[i])
		}
		if n := len(shown); n > 0 && shown[n-1] == "^C" {
			c.Interrupted, shown = true, shown[:n-1]
		}
		c.Shows = strings.Join(shown, "\n")
		commands = append(commands, c)
	}
	return commands, nil
}
