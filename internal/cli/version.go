package cli

import (
	"context"
	"flag"
	"fmt"
	"runtime"
)

func versionCommand() command {
	return command{
		name: "version", summary: "print the version",
		setup: func(f *flag.FlagSet) action {
			asJSON := f.Bool("json", false, "print JSON")
			return func(_ context.Context, e *env, _ []string) error {
				if *asJSON {
					return writeJSON(e.stdout, map[string]string{"version": e.version, "go": runtime.Version()})
				}
				_, err := fmt.Fprintf(e.stdout, "dispatcher %s (%s)\n", e.version, runtime.Version())
				return err
			}
		},
	}
}
