// Package bench measures the service against its own limit: raw River, on the
// same PostgreSQL and with the same receiver, in the same run.
//
// Every process is apart, so that what each costs can be told: this one makes the
// load and runs raw River; the nodes of the service, and the sink that stands for
// all providers, are this program started again as parts. Each sample has a new
// database, copied from a template, and rounds are interleaved: a machine that
// grows slower in the meantime does so for all.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notification-dispatcher/dispatcher/internal/localpg"
)

// Options say what to measure, and how.
type Options struct {
	// DatabaseURL is of a server that the benchmark may make databases on; empty
	// for a private one. No database that is there is touched.
	DatabaseURL string
	// Folder is where the private server keeps its data for the time of the run;
	// default the system's folder for temporary files. It should be on the disk
	// that a database would be on.
	Folder string
	// Only names the scenarios to run; empty for all.
	Only []string
	// Rounds is how often each is measured; default 3.
	Rounds int
	// Count is how many notifications a sample of throughput has; default 30000.
	Count int
	// Backlog is how many rows wait, or have ended, where that is the point;
	// default 1,000,000.
	Backlog int
	// InFlight is max_in_flight of the channels; default 1024.
	InFlight int
	// Hosts is how many destinations webhooks go to, 1 to 100; default 16.
	Hosts int
	// Small measures so little that it takes seconds: to see that all of it works.
	Small bool
	// CPUProfile and HeapProfile name files for profiles of what is measured, of
	// each sample one: the sample's name is put before the extension.
	CPUProfile, HeapProfile string
	// Statements collects pg_stat_statements of each sample.
	Statements bool
	// Program is this program's path; default the path of this process's.
	Program string
	// Log receives progress and the warnings of the parts.
	Log io.Writer
	// Version is the program's.
	Version string
}

func (o *Options) setDefaults() error {
	if err := o.Check(); err != nil {
		return err
	}
	small := func(n, least int) int {
		if o.Small {
			return least
		}
		return n
	}
	for _, d := range []struct {
		set   *int
		value int
	}{
		{&o.Rounds, small(3, 1)},
		{&o.Count, small(30_000, 300)},
		{&o.Backlog, small(1_000_000, 2000)},
		{&o.InFlight, 1024},
		{&o.Hosts, 16},
	} {
		if *d.set == 0 {
			*d.set = d.value
		}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Program == "" {
		path, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		o.Program = path
	}
	return nil
}

// Check reports what is wrong with the options, nil for nothing.
func (o *Options) Check() error {
	for _, n := range []int{o.Rounds, o.Count, o.Backlog, o.InFlight, o.Hosts} {
		if n < 0 {
			return errors.New("numbers must be positive")
		}
	}
	if o.Hosts > 100 {
		return errors.New("there can be 100 destinations at most")
	}
	for _, name := range o.Only {
		if !slices.ContainsFunc(Scenarios(), func(s Scenario) bool { return s.Name == name }) {
			return fmt.Errorf("there is no scenario %q", name)
		}
	}
	return nil
}

// bench is one run.
type bench struct {
	o         Options
	admin     *pgxpool.Pool // of the server's own database
	serverURL string
	templates map[string]string // databases to copy, by kind
	key       string            // of the template for the service
	databases int               // made so far
	server    int               // the postmaster's process id, 0 where it is not known
	sink      *part
	profiles  profiler // of this process
	profiling string   // the sample's name
}

// settings of the private server are those of production: nothing that was
// committed can be lost. Sizes suit a small machine.
func settings(statements bool) map[string]string {
	s := map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "wal_level": "replica",
		"shared_buffers": "512MB", "max_wal_size": "4GB", "checkpoint_timeout": "15min",
		"effective_cache_size": "2GB", "random_page_cost": "1.1", "max_connections": "200",
	}
	if statements {
		s["shared_preload_libraries"] = "pg_stat_statements"
		s["pg_stat_statements.track"] = "top"
	}
	return s
}

// Run measures and returns the report. Scenarios that failed are in it, and the
// error then says so.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	b := &bench{o: o, templates: map[string]string{}}
	stop, err := b.openServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if b.sink, err = b.startPart(ctx, start{Kind: kindSink, Hosts: b.o.Hosts + 1}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.sink.stop()) }()
	report, err := b.newReport(ctx)
	if err != nil {
		return nil, err
	}
	b.printf("%s\n", report.header())
	b.measure(ctx, report)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	report.finish()
	return report, report.failures()
}

func (b *bench) printf(format string, args ...any) { _, _ = fmt.Fprintf(b.o.Log, format, args...) }

// openServer starts the private server, or connects to the one that is given.
func (b *bench) openServer(ctx context.Context) (func() error, error) {
	end := func() error { return nil }
	if b.serverURL = b.o.DatabaseURL; b.serverURL == "" {
		var err error
		if end, err = b.startServer(ctx); err != nil {
			return nil, err
		}
	}
	disconnect, err := b.connect(ctx)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return func() error { return errors.Join(disconnect(), end()) }, nil
}

// startServer starts the private server, in a folder of its own that goes with it.
func (b *bench) startServer(ctx context.Context) (stop func() error, err error) {
	folder, err := os.MkdirTemp(b.o.Folder, "dispatcher-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for PostgreSQL: %w", err)
	}
	if err := os.Chmod(folder, 0o711); err != nil { //nolint:gosec // the server may run as another user
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	cluster, err := localpg.Start(ctx, localpg.Config{Folder: filepath.Join(folder, "pg"), Settings: settings(b.o.Statements)})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	b.serverURL = cluster.URL("postgres")
	return func() error { return errors.Join(cluster.Stop(), os.RemoveAll(folder)) }, nil
}

// connect connects to the server's own database and finds out what can be known
// of its processes.
func (b *bench) connect(ctx context.Context) (stop func() error, err error) {
	cfg, err := pgxpool.ParseConfig(b.serverURL)
	if err != nil {
		return nil, errors.New("the database URL cannot be parsed") // the parser's own words may hold the password
	}
	cfg.MaxConns = 2
	cfg.ConnConfig.RuntimeParams["application_name"] = "dispatcher-bench"
	if b.admin, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	b.server, err = b.findPostmaster(ctx)
	if err != nil && !errors.Is(err, errNoServerUsage) {
		b.admin.Close()
		return nil, err
	}
	return func() error {
		defer b.admin.Close()
		return b.dropTemplates(context.WithoutCancel(ctx))
	}, nil
}

// measure runs the rounds: all scenarios that compare in each, and then those that
// are long and stand by themselves.
func (b *bench) measure(ctx context.Context, r *Report) {
	var repeated, once []Scenario
	for _, s := range Scenarios() {
		switch {
		case len(b.o.Only) > 0 && !slices.Contains(b.o.Only, s.Name):
		case s.Once:
			once = append(once, s)
		default:
			repeated = append(repeated, s)
		}
	}
	for round := range b.o.Rounds {
		for _, s := range repeated {
			b.sample(ctx, r, s, round+1)
		}
	}
	for _, s := range once {
		b.sample(ctx, r, s, 1)
	}
}

// sample measures a scenario once.
func (b *bench) sample(ctx context.Context, r *Report, s Scenario, round int) {
	line := r.line(s)
	if ctx.Err() != nil || line.Error != "" {
		return
	}
	b.profiling = fmt.Sprintf("%s.%d", s.Name, round)
	began := time.Now()
	sample, err := s.run(ctx, b)
	if err != nil {
		line.Error = err.Error()
		b.printf("%-22s round %d: FAILED: %v\n", s.Name, round, err)
		return
	}
	line.Samples = append(line.Samples, sample)
	b.printf("%-22s round %d: %s %s%s (%.1f s)\n", s.Name, round, rounded(sample.Value), s.Unit, sample.detail(), time.Since(began).Seconds())
}

// profileAs adds to the names of profiles, until the function that it returns is
// called.
func (b *bench) profileAs(name string) (back func()) {
	before := b.profiling
	b.profiling += "." + name
	return func() { b.profiling = before }
}

// profileFile is the file for a profile of this sample's process, empty for none.
func (b *bench) profileFile(pattern, process string) string {
	if pattern == "" {
		return ""
	}
	ext := filepath.Ext(pattern)
	return strings.TrimSuffix(pattern, ext) + "." + b.profiling + process + ext
}
