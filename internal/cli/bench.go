package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/bench"
)

func benchCommand() command {
	return command{
		name: "bench", summary: "measure how fast this machine delivers, beside raw River",
		details: `It starts a private PostgreSQL with the settings of production, or makes databases of its own on the server of
--database-url, and a receiver that stands for the providers; everything runs on this machine. See docs/performance.md
for what is measured. Nothing else should run meanwhile.`,
		setup: setupBench,
	}
}

// benchFlags are the flags of bench.
type benchFlags struct {
	o                bench.Options
	only, json, data string
	list             bool
}

func setupBench(f *flag.FlagSet) action {
	b := &benchFlags{}
	f.StringVar(&b.o.DatabaseURL, "database-url", "", "make databases on the server at this `url` in place of a private one")
	f.StringVar(&b.data, "data", "", "the `folder` for the private server's data while it runs, on the disk to be measured (default the system's for temporary files)")
	f.StringVar(&b.only, "only", "", "only these scenarios, as `name,…`")
	f.BoolVar(&b.list, "list", false, "list the scenarios")
	f.BoolVar(&b.o.Small, "small", false, "measure so little that it takes seconds: to see that all of it works")
	f.IntVar(&b.o.Rounds, "rounds", 0, "measure each this `many` times (default 3)")
	f.IntVar(&b.o.Count, "count", 0, "the `number` of notifications of a sample (default 30000)")
	f.IntVar(&b.o.Backlog, "backlog", 0, "the `number` of rows of a backlog (default 1000000)")
	f.IntVar(&b.o.InFlight, "in-flight", 0, "the `number` of calls that a channel makes at once, max_in_flight (default 1024)")
	f.IntVar(&b.o.Hosts, "hosts", 0, "the `number` of destinations that webhooks go to (default 16)")
	f.StringVar(&b.json, "json", "", "write the results into this `file` too")
	f.StringVar(&b.o.CPUProfile, "cpuprofile", "", "write a CPU profile of each sample into a `file`, with the sample's name before the extension")
	f.StringVar(&b.o.HeapProfile, "memprofile", "", "write a profile of allocations of each sample into a `file`, likewise")
	f.BoolVar(&b.o.Statements, "statements", false, "show what each statement cost, by pg_stat_statements")
	return b.run
}

func (b *benchFlags) run(ctx context.Context, e *env, _ []string) error {
	if e.vars[bench.PartVariable] != "" {
		return bench.ServePart(ctx, e.stdin, e.stdout, e.stderr, e.version)
	}
	if b.list {
		var rows [][]string
		for _, s := range bench.Scenarios() {
			rows = append(rows, []string{s.Name, s.Summary})
		}
		table(e.stdout, rows)
		return nil
	}
	b.o.Folder, b.o.Log, b.o.Version = b.data, e.stderr, e.version
	if b.only != "" {
		b.o.Only = strings.Split(b.only, ",")
	}
	if err := b.o.Check(); err != nil {
		return usagef("%s; see dispatcher bench --list", err)
	}
	report, err := bench.Run(ctx, b.o)
	if report == nil {
		return err
	}
	err = errors.Join(err, report.Print(e.stdout))
	if b.json == "" {
		return err
	}
	text, jsonErr := json.MarshalIndent(report, "", "  ")
	if jsonErr == nil {
		jsonErr = os.WriteFile(b.json, append(text, '\n'), 0o644) //nolint:gosec // results are no secret
	}
	if jsonErr != nil {
		jsonErr = fmt.Errorf("write results: %w", jsonErr)
	}
	return errors.Join(err, jsonErr)
}
