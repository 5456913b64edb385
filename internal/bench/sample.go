package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Sample is one measurement of a scenario.
type Sample struct {
	// Value is what the scenario is about, in its unit.
	Value float64 `json:"value"`
	// Cost is what a thousand of them cost; absent where the scenario is about
	// something else.
	Cost *Cost `json:"cost,omitzero"`
	// More is what else was measured, by name with its unit.
	More       map[string]float64 `json:"more,omitzero"`
	Statements []Statement        `json:"statements,omitzero"`
}

// Cost is what a sample used.
type Cost struct {
	Service float64 `json:"service_cpu_s_per_1000"` // of the nodes, or of the process that runs raw River
	Server  float64 `json:"postgres_cpu_s_per_1000"`
	Sink    float64 `json:"sink_cpu_s_per_1000"`
	Load    float64 `json:"load_cpu_s_per_1000"` // of the process that makes the load, where it runs nothing else
	WAL     float64 `json:"wal_bytes_each"`
	Size    float64 `json:"table_bytes_each"` // tables and indexes
	Queries float64 `json:"transactions_each"`
	Peak    float64 `json:"peak_rss_mb"` // of the largest node
	// Connections is how many the nodes have to the database; 0 for raw River.
	Connections float64 `json:"connections"`
}

// detail is More in a line.
func (s *Sample) detail() string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.More)) {
		fmt.Fprintf(&out, ", %s %s", rounded(s.More[name]), name)
	}
	return out.String()
}

// meter reads what everything has used.
type meter struct {
	b     *bench
	d     *database
	nodes []*part
	began time.Time
	from  reading
}

type reading struct {
	state
	load, sink usage
	nodes      []usage
}

func (m *meter) read(ctx context.Context) (reading, error) {
	var r reading
	var err error
	if r.state, err = m.b.state(ctx, m.d); err != nil {
		return r, err
	}
	if r.load, err = ownUsage(); err != nil {
		return r, err
	}
	if err := m.b.sink.ask(ctx, order{Do: doUsage}, &r.sink); err != nil {
		return r, err
	}
	r.nodes = make([]usage, len(m.nodes))
	for i, n := range m.nodes {
		if err := n.ask(ctx, order{Do: doUsage}, &r.nodes[i]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// begin starts to measure what happens on a database, by the nodes or, without
// any, by this process. Profiles begin here too.
func (b *bench) begin(ctx context.Context, d *database, nodes ...*part) (*meter, error) {
	m := &meter{b: b, d: d, nodes: nodes}
	if b.o.Statements {
		if _, err := d.pool.Exec(ctx, "select pg_stat_statements_reset()"); err != nil {
			return nil, fmt.Errorf("reset statements: %w", err)
		}
	}
	if err := m.profile(ctx, b.o.CPUProfile); err != nil {
		return nil, err
	}
	var err error
	if m.from, err = m.read(ctx); err != nil {
		return nil, err
	}
	m.began = time.Now()
	return m, nil
}

// profile begins CPU profiles, or ends them for an empty pattern.
func (m *meter) profile(ctx context.Context, pattern string) error {
	if m.b.o.CPUProfile == "" {
		return nil
	}
	if len(m.nodes) == 0 {
		return m.b.profiles.cpu(m.b.profileFile(pattern, ""))
	}
	for i, n := range m.nodes {
		if err := n.ask(ctx, order{Do: doProfile, File: m.b.profileFile(pattern, nodeName(i))}, nil); err != nil {
			return err
		}
	}
	return nil
}

func nodeName(i int) string {
	if i == 0 {
		return ""
	}
	return fmt.Sprintf(".node%d", i+1)
}

// end stops measuring: n things were done within the time since the beginning, of
// which the end was at the given instant.
func (m *meter) end(ctx context.Context, n int, at time.Time) (Sample, error) {
	to, err := m.read(ctx)
	if err != nil {
		return Sample{}, err
	}
	if err := m.profile(ctx, ""); err != nil {
		return Sample{}, err
	}
	if m.b.o.HeapProfile != "" {
		for i, node := range m.nodes {
			if err := node.ask(ctx, order{Do: doHeap, File: m.b.profileFile(m.b.o.HeapProfile, nodeName(i))}, nil); err != nil {
				return Sample{}, err
			}
		}
	}
	s := Sample{Value: float64(n) / at.Sub(m.began).Seconds(), Cost: m.cost(to, n)}
	if m.b.o.Statements {
		if s.Statements, err = m.d.statements(ctx); err != nil {
			return Sample{}, err
		}
	}
	return s, nil
}

func (m *meter) cost(to reading, n int) *Cost {
	each := func(amount float64) float64 { return amount / float64(n) }
	thousand := func(d time.Duration) float64 { return each(d.Seconds() * 1000) }
	c := &Cost{
		Server: thousand(to.cpu - m.from.cpu), Sink: thousand(to.sink.CPU - m.from.sink.CPU),
		WAL: each(float64(to.wal - m.from.wal)), Size: each(float64(to.size - m.from.size)),
		Queries: each(float64(to.transactions - m.from.transactions)), Connections: float64(to.connections),
	}
	own := thousand(to.load.CPU - m.from.load.CPU)
	if len(m.nodes) == 0 {
		c.Service, c.Peak = own, float64(to.load.Peak)/(1<<20)
		return c
	}
	c.Load = own
	for i, u := range to.nodes {
		c.Service += thousand(u.CPU - m.from.nodes[i].CPU)
		c.Peak = max(c.Peak, float64(u.Peak)/(1<<20))
	}
	return c
}
