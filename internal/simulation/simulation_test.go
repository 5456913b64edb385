package simulation

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run the world of this seed only")
	worlds  = flag.Int("worlds", usualWorlds, "how many worlds to run")
	first   = flag.Uint64("first", 1, "the seed of the first world")
	verbose = flag.Bool("trace", false, "show all that happened in a world that breaks a rule")
)

func TestClusterKeepsItsPromises(t *testing.T) {
	from, to := *first, *first+uint64(*worlds)
	if *oneSeed != 0 {
		from, to = *oneSeed, *oneSeed+1
	}
	var sum stats
	for seed := from; seed < to && !t.Failed(); seed++ {
		run := func(t *testing.T, traced bool) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seed, traced)
				w.run()
				sum.add(w.stats)
			})
		}
		ok := t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { run(t, *verbose) })
		if !ok && !*verbose {
			t.Run("again", func(t *testing.T) { run(t, true) }) // to tell what happened
		}
	}
	t.Logf("%d worlds: %+v", to-from, sum)
	if t.Failed() || to-from < 100 {
		return
	}
	for what, n := range map[string]int{
		"trips": sum.Trips, "closings": sum.Closings, "probes": sum.Probes, "refusals": sum.Refusals, "crashes": sum.Crashes,
		"429s": sum.Throttled, "unknown outcomes": sum.Unknown, "cancels": sum.Canceled, "lost answers": sum.Lost,
		"fallbacks": sum.Fallbacks, "deliveries": sum.Delivered, "receipts": sum.Receipts, "receipts before the answer": sum.EarlyReceipts,
		"lost receipts": sum.LostReceipts, "corrections": sum.Corrected, "superseded steps": sum.Superseded,
		"failovers": sum.Failovers, "deliveries passed on": sum.Passed,
	} {
		if n < int(to-from)/20 {
			t.Errorf("only %d %s in %d worlds: they show nothing", n, what, to-from)
		}
	}
}

func (s *stats) add(o stats) {
	s.Events += o.Events
	s.Calls += o.Calls
	s.Probes += o.Probes
	s.Trips += o.Trips
	s.Closings += o.Closings
	s.Refusals += o.Refusals
	s.Crashes += o.Crashes
	s.Throttled += o.Throttled
	s.Unknown += o.Unknown
	s.Canceled += o.Canceled
	s.Lost += o.Lost
	s.Fallbacks += o.Fallbacks
	s.Delivered += o.Delivered
	s.Receipts += o.Receipts
	s.EarlyReceipts += o.EarlyReceipts
	s.LostReceipts += o.LostReceipts
	s.Corrected += o.Corrected
	s.Superseded += o.Superseded
	s.Failovers += o.Failovers
	s.Passed += o.Passed
}
