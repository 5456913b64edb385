package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a run measured.
type Report struct {
	StartedAt time.Time         `json:"started_at"`
	Seconds   float64           `json:"seconds"`
	Machine   Machine           `json:"machine"`
	Settings  map[string]string `json:"settings"` // of the server, as it says itself
	Count     int               `json:"count"`
	Backlog   int               `json:"backlog"`
	InFlight  int               `json:"max_in_flight"`
	Hosts     int               `json:"hosts"`
	Small     bool              `json:"small,omitzero"`
	Lines     []*Line           `json:"scenarios"`
}

// Machine is where it was measured.
type Machine struct {
	CPU      string  `json:"cpu,omitzero"`
	Cores    int     `json:"cores"`
	OS       string  `json:"os"`
	Go       string  `json:"go"`
	Version  string  `json:"version"`
	Postgres string  `json:"postgres"`
	Load     float64 `json:"load_average_before,omitzero"` // of the last minute
}

// Line is a scenario's result.
type Line struct {
	Name    string   `json:"name"`
	Summary string   `json:"summary"`
	Unit    string   `json:"unit"`
	Error   string   `json:"error,omitzero"`
	Median  float64  `json:"median"`
	Min     float64  `json:"min"`
	Max     float64  `json:"max"`
	Ratio   float64  `json:"ratio_to_river,omitzero"`       // of medians
	Tuned   float64  `json:"ratio_to_river_tuned,omitzero"` // of medians
	Samples []Sample `json:"samples"`

	scenario Scenario
}

// shown are the server's settings that a report has.
var shown = []string{
	"fsync", "synchronous_commit", "full_page_writes", "wal_level", "wal_compression", "shared_buffers", "max_wal_size", "checkpoint_timeout", "random_page_cost",
	"autovacuum", "jit",
}

func (b *bench) newReport(ctx context.Context) (*Report, error) {
	r := &Report{
		StartedAt: time.Now().UTC(), Count: b.o.Count, Backlog: b.o.Backlog, InFlight: b.o.InFlight, Hosts: b.o.Hosts, Small: b.o.Small,
		Settings: map[string]string{},
		Machine: Machine{
			CPU: cpuModel(), Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Version: b.o.Version, Load: loadAverage(),
		},
	}
	for _, name := range append([]string{"server_version"}, shown...) {
		var value string
		if err := b.admin.QueryRow(ctx, "select current_setting($1)", name).Scan(&value); err != nil {
			return nil, fmt.Errorf("read the server's settings: %w", err)
		}
		r.Settings[name] = value
	}
	r.Machine.Postgres = r.Settings["server_version"]
	return r, nil
}

// line returns a scenario's line, which it makes the first time.
func (r *Report) line(s Scenario) *Line {
	for _, l := range r.Lines {
		if l.Name == s.Name {
			return l
		}
	}
	l := &Line{Name: s.Name, Summary: s.Summary, Unit: s.Unit, scenario: s}
	r.Lines = append(r.Lines, l)
	return l
}

// finish calculates what compares samples and scenarios.
func (r *Report) finish() {
	r.Seconds = time.Since(r.StartedAt).Seconds()
	for _, l := range r.Lines {
		values := make([]float64, len(l.Samples))
		for i := range l.Samples {
			values[i] = l.Samples[i].Value
		}
		if len(values) > 0 {
			l.Median, l.Min, l.Max = median(values), slices.Min(values), slices.Max(values)
		}
	}
	river, tuned := r.medianOf(reference), r.medianOf(tunedReference)
	for _, l := range r.Lines {
		if l.Unit != perSecond {
			continue
		}
		if river > 0 {
			l.Ratio = l.Median / river
		}
		if tuned > 0 {
			l.Tuned = l.Median / tuned
		}
	}
}

func (r *Report) medianOf(name string) float64 {
	for _, l := range r.Lines {
		if l.Name == name {
			return l.Median
		}
	}
	return 0
}

// failures is an error that names the scenarios which failed, nil for none.
func (r *Report) failures() error {
	var errs []error
	for _, l := range r.Lines {
		if l.Error != "" {
			errs = append(errs, fmt.Errorf("%s: %s", l.Name, l.Error))
		}
	}
	return errors.Join(errs...)
}

// median of at least one value.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// header says where and how it is measured.
func (r *Report) header() string {
	var out strings.Builder
	m := r.Machine
	if m.CPU != "" {
		fmt.Fprintf(&out, "%s, ", m.CPU)
	}
	fmt.Fprintf(&out, "%d cores, %s, %s, dispatcher %s, PostgreSQL %s", m.Cores, m.OS, m.Go, m.Version, m.Postgres)
	if m.Load > 0 {
		fmt.Fprintf(&out, ", load average before %.2f", m.Load)
	}
	out.WriteString("\nPostgreSQL:")
	for _, name := range shown {
		fmt.Fprintf(&out, " %s=%s", name, r.Settings[name])
	}
	fmt.Fprintf(&out, "\n%d notifications a sample, max_in_flight %d, %d webhook hosts\n", r.Count, r.InFlight, r.Hosts)
	return out.String()
}

// Print writes the table.
func (r *Report) Print(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "\n%s\n", r.header()); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { _, _ = fmt.Fprintf(t, "%s\t\n", strings.Join(cells, "\t")) } // Flush tells what went wrong
	row("", "median", "min – max", "×River", "×tuned", "CPU s/1000", "Postgres", "sink", "WAL B", "table B", "tx", "conns", "MB")
	for _, l := range r.Lines {
		if l.Error != "" || len(l.Samples) == 0 {
			row(l.Name, "FAILED")
			continue
		}
		cells := []string{l.Name, rounded(l.Median) + " " + l.Unit, rounded(l.Min) + " – " + rounded(l.Max), ratio(l.Ratio), ratio(l.Tuned)}
		row(append(cells, l.cost()...)...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return r.printNotes(w)
}

// cost is the medians of a line's costs.
func (l *Line) cost() []string {
	of := func(get func(*Cost) float64) float64 {
		var values []float64
		for i := range l.Samples {
			if c := l.Samples[i].Cost; c != nil {
				values = append(values, get(c))
			}
		}
		if len(values) == 0 {
			return math.NaN()
		}
		return median(values)
	}
	// Zero is what is not known, or does not apply.
	known := func(v float64, digits int) string {
		if v == 0 {
			return ""
		}
		return decimals(v, digits)
	}
	return []string{
		known(of(func(c *Cost) float64 { return c.Service }), 2), known(of(func(c *Cost) float64 { return c.Server }), 2),
		known(of(func(c *Cost) float64 { return c.Sink }), 2), known(of(func(c *Cost) float64 { return c.WAL }), 0),
		known(of(func(c *Cost) float64 { return c.Size }), 0), known(of(func(c *Cost) float64 { return c.Queries }), 3),
		known(of(func(c *Cost) float64 { return c.Connections }), 0), known(of(func(c *Cost) float64 { return c.Peak }), 0),
	}
}

// printNotes says what each line is, and what else was measured.
func (r *Report) printNotes(w io.Writer) error {
	var out strings.Builder
	out.WriteString("\n")
	for _, l := range r.Lines {
		fmt.Fprintf(&out, "%s: %s\n", l.Name, l.Summary)
		if l.Error != "" {
			fmt.Fprintf(&out, "  FAILED: %s\n", l.Error)
		}
		for _, name := range l.more() {
			var values []float64
			for i := range l.Samples {
				if v, ok := l.Samples[i].More[name]; ok {
					values = append(values, v)
				}
			}
			fmt.Fprintf(&out, "  %s %s\n", rounded(median(values)), name)
		}
		for i := range l.Samples {
			if i == len(l.Samples)-1 {
				for _, s := range l.Samples[i].Statements {
					fmt.Fprintf(&out, "  %9.1f ms %8d calls %8d rows %6.1f MB WAL  %.160s\n", s.Ms, s.Calls, s.Rows, float64(s.WAL)/1e6, s.Text)
				}
			}
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (l *Line) more() []string {
	var names []string
	for i := range l.Samples {
		for name := range l.Samples[i].More {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func ratio(v float64) string {
	if v == 0 {
		return ""
	}
	return decimals(v, 2)
}

func decimals(v float64, n int) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'f', n, 64)
}

// rounded writes a number with as many digits as mean anything.
func rounded(v float64) string {
	switch {
	case math.Abs(v) >= 100:
		return decimals(v, 0)
	case math.Abs(v) >= 10:
		return decimals(v, 1)
	}
	return decimals(v, 2)
}

// cpuModel is Linux's name of the processor, empty elsewhere.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// loadAverage is Linux's, 0 elsewhere.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return v
}
