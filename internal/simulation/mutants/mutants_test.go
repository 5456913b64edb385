// Package mutants shows that the simulation sees what it is meant to see: with a
// rule taken out of the sources, a world breaks.
package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a fault: in file, from is replaced by to.
type mutant struct {
	name     string
	file     string // below internal
	from, to string
	breaks   string // the invariants that may be found broken
}

var mutants = []mutant{
	{
		"evidence of an older generation opens a breaker", "resilience/record.go",
		"|| b.generation != seen {", "|| false {", "I6",
	},
	{
		"the verdict of a probe whose place was taken counts", "resilience/breaker.go",
		"if !b.probing || p.probe != b.probes {", "if !b.probing {", "I5",
	},
	{
		"a probe's lease never ends", "resilience/breaker.go",
		"b.probing && now.Before(b.leaseUntil)", "b.probing", "I1",
	},
	{
		"a probe may outlive its lease", "resilience/member.go",
		"return until, until.IsZero() || now.Before(until)", "return time.Time{}, true", "I5",
	},
	{
		"probes are not counted", "resilience/breaker.go",
		"b.probing, b.leaseUntil = true,", "b.probing, b.leaseUntil = false,", "I5",
	},
	{
		"a cancel counts as a failure", "resilience/member.go",
		"Evidence{Verdict: None}", "Evidence{Verdict: Failure}", "I5 I6",
	},
	{
		"one of two witnesses is enough", "resilience/window.go",
		"quorum := min(s.Nodes, 2)", "quorum := min(s.Nodes, 1)", "I6",
	},
	{
		"a gate moves earlier", "resilience/gate.go",
		"if !until.After(g.notBefore) {", "if until.Equal(g.notBefore) {", "I4",
	},
	{
		"a gate that could not be handed in is forgotten", "resilience/member_sync.go",
		"m.shut(scope, now.Add(left))", "_, _ = scope, left", "I4",
	},
	{
		"changes that were committed late are missed", "resilience/member_sync.go",
		"m.since = c.Now.Add(-overlap)", "m.since = c.Now", "I4 I5",
	},
	{
		"a reset opens what was shut after it", "resilience/guard_ops.go",
		"if !e.heardAt.Before(at) {", "if false {", "I4",
	},
	{
		"gates are not looked at again before the call", "resilience/member.go",
		"m == nil || m.guard.gated(p.all, now)", "m == nil", "I4",
	},
	{
		"a lost claim is never asked for again", "resilience/member.go",
		"	v.claiming = false\n	if err != nil {", "	v.claiming = err != nil\n	if err != nil {", "I1",
	},
	{
		"nothing is woken for a probe", "resilience/room.go",
		"	case claim:\n		return 1\n", "	case claim:\n		return 0\n", "I1",
	},
	{
		"an open breaker uses up an attempt", "fallback/decide.go",
		"until, now time.Time) Decision {\n	d := Decision{State: s}", "until, now time.Time) Decision {\n	s.Attempts++\n	d := Decision{State: s}", "I6",
	},
	{
		"a permanent failure is retried", "fallback/decide.go",
		"case notify.RecipientRejected, notify.MessageRejected:\n		return d.end(notify.Failed, because)",
		"case notify.RecipientRejected, notify.MessageRejected:\n		return d.requeue(because)", "I7",
	},
	{
		"an unknown outcome is repeated again and again", "fallback/next.go",
		"if p.Last && d.Repeats == 0 &&", "if p.Last &&", "I2",
	},
	{
		"a retry goes on after a cancel", "fallback/next.go",
		"	case d.Stop != \"\":\n		return d.stopped(), true\n", "", "I1 I3",
	},
	{
		"what is said last is taken for what is so", "fallback/receive.go",
		"case c.Receipt == \"\" || status.Rank() > c.Receipt.Rank():", "case true:", "I8",
	},
	{
		"a failed receipt does not take an acceptance back", "fallback/receive.go",
		"if status == \"\" && c.Outcome == notify.Accepted {", "if c.Outcome == notify.Accepted && !notify.UntilDelivered.MetBy(status) {", "I8",
	},
	{
		"the receipt of an earlier call fails a later one", "fallback/receive.go",
		"case !taken(s.Status) && !e.Last:", "case false:", "I3",
	},
	{
		"a receipt does not call off the repeat", "fallback/receive.go",
		"		d.State.Status = e.Status\n		return d.settled(p, now), true\n",
		"		d.State.Status = e.Status\n		return d.settled(p, now), s.Status == notify.Sending || taken(s.Status)\n", "I2",
	},
	{
		"an account's repair is waited for although there is another", "fallback/decide.go",
		"if p.Elsewhere {\n			return d.pass(because, notify.WaitAccountRejected, now)", "if false {\n			return d.pass(because, notify.WaitAccountRejected, now)", "I1",
	},
	{
		"an open breaker is waited for although there is another account", "fallback/choose.go",
		"	default:\n		return false\n	}\n	last :=", "	default:\n	}\n	last :=", "I1",
	},
	{
		"an account that turned a delivery away gets it again", "fallback/choose.go",
		"		case c.Refused:\n			continue\n", "", "I3",
	},
	{
		"what an account may have taken is repeated through another", "fallback/choose.go",
		"!c.Refused && (c.Bar.Reason == \"\" || a.waits(c, now))", "false && a.waits(c, now)", "I2",
	},
	{
		"an unknown outcome is passed on whatever the policy", "fallback/decide.go",
		"	case notify.Unknown:\n		return d.unknown(p, o, now)",
		"	case notify.Unknown:\n		if p.Elsewhere {\n			return d.pass(because, notify.WaitBackoff, now)\n		}\n		return d.unknown(p, o, now)", "I2",
	},
	{
		"a repeat is not marked as a possible duplicate", "fallback/next.go",
		"	if !next.Final {\n		next.Repeats++\n	}\n", "", "I2",
	},
}

// lives is how many worlds a mutant may live through.
const lives = "1500"

func TestMutantsAreFound(t *testing.T) { //nolint:tparallel // builds first
	if testing.Short() {
		t.Skip("builds a test binary for each mutant")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, m)
			if err == nil {
				t.Fatalf("lives through %s worlds:\n%s", lives, out)
			}
			_, said, found := bytes.Cut(out, []byte(" is broken at "))
			if !found {
				t.Fatalf("fails for another reason (%v):\n%s", err, out)
			}
			rule := string(out[bytes.LastIndexByte(out[:bytes.Index(out, []byte(" is broken at "))], ' ')+1:][:2])
			if !strings.Contains(m.breaks, rule) {
				t.Errorf("breaks %s, want %s:%.300s", rule, m.breaks, said)
			}
			t.Logf("%s:%.250s", rule, said)
		})
	}
}

// run builds the simulation with the mutant in place of the source and runs it.
func run(t *testing.T, m mutant) ([]byte, error) {
	t.Helper()
	internal, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(internal, filepath.FromSlash(m.file))
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte(m.from)); n != 1 {
		t.Fatalf("%s has %d times %q, want once: write this mutant anew", m.file, n, m.from)
	}
	dir := t.TempDir()
	changed, overlay, binary := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "simulation.test")
	write(t, changed, bytes.Replace(text, []byte(m.from), []byte(m.to), 1))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, overlay, replace)
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay="+overlay, "-o", binary, "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile: %v\n%s", err, out)
	}
	return worlds(t.Context(), binary)
}

func worlds(ctx context.Context, binary string) ([]byte, error) {
	return exec.CommandContext(ctx, binary, "-test.run=Cluster/seed", "-worlds="+lives).CombinedOutput()
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
