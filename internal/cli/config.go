package cli

import (
	"context"
	"flag"
	"fmt"

	"github.com/notification-dispatcher/dispatcher/internal/channels/catalog"
	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
)

func configCommand() command {
	return command{
		name: "config", summary: "check a configuration, or print an example of one",
		sub: []command{
			{
				name: "check", args: "[FILE]", summary: "report everything that is wrong with a configuration",
				details: "It reads the file, the environment and every secret, as serve does, and builds every account.\n" +
					"Without FILE it reads $DISPATCHER_CONFIG.",
				setup: func(f *flag.FlagSet) action {
					asJSON := f.Bool("json", false, "print JSON")
					return func(_ context.Context, e *env, args []string) error { return configCheck(e, args, *asJSON) }
				},
			},
			{
				name: "example", summary: "print a complete annotated configuration",
				details: "With --sandbox and --smtp every account in it points at that sandbox, and holds throwaway keys; with --public-url,\n" +
					"which is this service's address as the sandbox's --service has it, accounts listen to what it reports.",
				setup: func(f *flag.FlagSet) action {
					sandbox := f.String("sandbox", "", "the sandbox's `url`")
					smtp := f.String("smtp", "", "the sandbox's SMTP `address`")
					public := f.String("public-url", "", "the `url` that others reach the service at")
					output := f.String("output", "", "write it to this `file`, not to standard output")
					return func(_ context.Context, e *env, _ []string) error {
						return configExample(e, config.ExampleOptions{Sandbox: *sandbox, SMTP: *smtp, PublicURL: *public}, *output)
					}
				},
			},
		},
	}
}

// check loads the configuration and builds its accounts.
func (e *env) check(file string, flags map[string]string) (config.Config, strict.Problems) {
	c, err := e.load(file, flags)
	problems := strict.From(err)
	_, err = catalog.Build(c.Accounts())
	return c, append(problems, strict.From(err)...)
}

func configCheck(e *env, args []string, asJSON bool) error {
	if len(args) > 1 {
		return usagef("config check takes one file")
	}
	file := ""
	if len(args) == 1 {
		file = args[0]
	}
	c, problems := e.check(file, nil)
	if asJSON {
		return checkJSON(e, c, problems)
	}
	if err := problems.Err(); err != nil {
		return err
	}
	printTo(e.stdout, "The configuration is fine.\n")
	accounts := c.Accounts()
	rows := make([][]string, len(accounts))
	for i, a := range accounts {
		rows[i] = []string{"  " + string(a.Channel), a.Name, a.Provider}
	}
	table(e.stdout, rows)
	return nil
}

func checkJSON(e *env, c config.Config, problems strict.Problems) error {
	type problem struct {
		Path string `json:"path"`
		Line int    `json:"line,omitzero"`
		Text string `json:"text"`
	}
	out := struct {
		OK       bool      `json:"ok"`
		Accounts int       `json:"accounts"`
		Problems []problem `json:"problems"`
	}{OK: len(problems) == 0, Accounts: len(c.Accounts())}
	for _, p := range problems {
		out.Problems = append(out.Problems, problem(p))
	}
	if err := writeJSON(e.stdout, out); err != nil {
		return err
	}
	if !out.OK {
		return errFailed
	}
	return nil
}

func configExample(e *env, o config.ExampleOptions, output string) error {
	if (o.Sandbox == "") != (o.SMTP == "") {
		return usagef("--sandbox and --smtp are given together")
	}
	text, err := config.Example(o)
	if err != nil {
		return err
	}
	if output != "" {
		if err := replaceFile(output, text); err != nil {
			return fmt.Errorf("write example: %w", err)
		}
		return nil
	}
	_, err = e.stdout.Write(text)
	return err
}
