// Package cli is the dispatcher program: its commands, their flags and what they
// print. It runs inside a test as well as in a process.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// Process is what a program is started with.
type Process struct {
	Args    []string // without the program's name
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Env     []string // as [os.Environ] returns it
	Version string
}

// env is a Process as the commands use it.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	vars           config.Env
	version        string
}

// errFailed ends a command that has printed what is wrong.
var errFailed = errors.New("failed")

// usageError is a mistake in the command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// Run runs a command until it is done or ctx ends, and returns its exit code: 0
// where it did what was asked, 1 where it failed, 2 for a mistake in the command
// line.
func Run(ctx context.Context, p Process) int {
	e := &env{stdin: p.Stdin, stdout: p.Stdout, stderr: p.Stderr, vars: config.ParseEnv(p.Env), version: p.Version}
	err := root().run(ctx, e, "dispatcher", p.Args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		printTo(e.stderr, "dispatcher: stopped\n")
		return exitFailed
	}
	if usage, ok := errors.AsType[*usageError](err); ok {
		printTo(e.stderr, "dispatcher: %s\n", usage)
		return exitUsage
	}
	if wrong, ok := errors.AsType[*strict.Error](err); ok {
		printTo(e.stderr, "dispatcher: the configuration has %s:\n", plural(len(wrong.Problems), "problem"))
		for _, p := range wrong.Problems {
			printTo(e.stderr, "  %s\n", p)
		}
		return exitFailed
	}
	if !errors.Is(err, errFailed) {
		printTo(e.stderr, "dispatcher: %s\n", err)
	}
	return exitFailed
}

func root() command {
	return command{
		summary: "Dispatcher sends notifications by push, SMS, WhatsApp, email, Slack and webhook,\n" +
			"and falls back from one to the next.",
		sub: []command{
			serveCommand(), devCommand(), sandboxCommand(), benchCommand(), migrateCommand(), sendCommand(), watchCommand(), showCommand(), cancelCommand(), ackCommand(), retryCommand(), eventsCommand(), keysCommand(),
			rolesCommand(), channelsCommand(), suppressionsCommand(), configCommand(), healthcheckCommand(), openapiCommand(), versionCommand(),
		},
	}
}

// load reads the configuration: the file named by the flag or by
// DISPATCHER_CONFIG, the environment, and flags by the paths of settings.
func (e *env) load(file string, flags map[string]string) (config.Config, error) {
	if file == "" {
		file = e.vars["DISPATCHER_CONFIG"]
	}
	return config.Load(file, e.vars, flags)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
