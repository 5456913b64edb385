package cli

import (
	"context"
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
)

// command is one word of the command line: a group of commands, or one that does
// something.
type command struct {
	name    string
	args    string // what stands after the flags, such as "ID"
	summary string // a line for the list of commands
	details string // what --help says beside it
	sub     []command
	// setup declares the flags and returns what to do once they are parsed.
	setup func(*flag.FlagSet) action
}

// action does a command's work. args are what is left beside the flags.
type action func(ctx context.Context, e *env, args []string) error

// run finds the command that args name and runs it. path is what was typed to
// come here.
func (c command) run(ctx context.Context, e *env, path string, args []string) error {
	if c.setup != nil {
		return c.act(ctx, e, path, args)
	}
	if len(args) == 0 {
		c.help(e.stderr, path, nil)
		return &usageError{"a command is missing"}
	}
	if slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		if len(args) > 1 && args[0] == "help" {
			return c.run(ctx, e, path, append(args[1:], "--help"))
		}
		c.help(e.stdout, path, nil)
		return flag.ErrHelp
	}
	i := slices.IndexFunc(c.sub, func(s command) bool { return s.name == args[0] })
	if i < 0 {
		return usagef("there is no command %q; see %s --help", args[0], path)
	}
	return c.sub[i].run(ctx, e, path+" "+args[0], args[1:])
}

func (c command) act(ctx context.Context, e *env, path string, args []string) error {
	flags := flag.NewFlagSet(path, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	do := c.setup(flags)
	rest, err := parse(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.help(e.stdout, path, flags)
		return err
	case err != nil:
		return usagef("%s; see %s --help", dashes(err.Error()), path)
	case c.args == "" && len(rest) > 0:
		return usagef("%s takes no argument %q", path, rest[0])
	}
	return do(ctx, e, rest)
}

// parse lets flags stand after arguments too, which package flag does not.
func parse(flags *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		left := flags.Args()
		if len(left) == 0 {
			return rest, nil
		}
		if n := len(args) - len(left); n > 0 && args[n-1] == "--" {
			return append(rest, left...), nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

// dashes writes flags in an error of package flag as they are typed here.
func dashes(text string) string {
	text = strings.ReplaceAll(text, "-help", "help")
	for _, before := range []string{"not defined: -", "argument: -", "for flag -", "for -"} {
		text = strings.ReplaceAll(text, before, before+"-")
	}
	return text
}

func (c command) help(w io.Writer, path string, flags *flag.FlagSet) {
	if c.name != "" {
		printTo(w, "%s: %s\n\n", path, c.summary)
	} else {
		printTo(w, "%s\n\n", c.summary)
	}
	switch {
	case c.sub != nil:
		printTo(w, "Usage: %s COMMAND\n\nCommands:\n", path)
		rows := make([][]string, len(c.sub))
		for i, s := range c.sub {
			rows[i] = []string{"  " + s.name, s.summary}
		}
		table(w, rows)
		printTo(w, "\n%s COMMAND --help says more about one of them.\n", path)
		return
	case c.args != "":
		printTo(w, "Usage: %s [flags] %s\n", path, c.args)
	default:
		printTo(w, "Usage: %s [flags]\n", path)
	}
	if c.details != "" {
		printTo(w, "\n%s\n", strings.TrimSpace(c.details))
	}
	flagHelp(w, flags)
}

func flagHelp(w io.Writer, flags *flag.FlagSet) {
	var rows [][]string
	flags.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		name := strings.TrimSuffix("--"+f.Name+" "+strings.ToUpper(value), " ")
		// A zero stands for a default that depends, which the usage tells.
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "false" && f.DefValue != "[]" {
			usage += " (default " + f.DefValue + ")"
		}
		rows = append(rows, []string{"  " + name, usage})
	})
	if len(rows) > 0 {
		printTo(w, "\nFlags:\n")
		table(w, rows)
	}
}

// list is a flag that may be given more than once.
type list []string

// String implements [flag.Value].
func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements [flag.Value].
func (l *list) Set(s string) error {
	*l = append(*l, s)
	return nil
}
