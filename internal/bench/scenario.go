package bench

import "context"

// Scenario is one thing that is measured.
type Scenario struct {
	Name    string
	Summary string
	Unit    string
	// Once: it is long, compares within itself, and is measured in one round only.
	Once bool

	run func(context.Context, *bench) (Sample, error)
}

// The scenarios that others are compared with.
const (
	reference      = "river"
	tunedReference = "river-tuned"
)

// The units.
const (
	perSecond = "/s" // of throughputs, which are compared with River's
	millis    = "ms"
	fraction  = "×"
)

// Scenarios returns all, in the order in which they are measured.
func Scenarios() []Scenario {
	throughput := func(name, summary string, run func(context.Context, *bench) (Sample, error)) Scenario {
		return Scenario{Name: name, Summary: summary, Unit: perSecond, run: run}
	}
	return []Scenario{
		throughput(reference, "raw River, jobs that do nothing, its schema as it ships: the reference", rawRiver(forRiver, false)),
		throughput(tunedReference, "the same without River's two GIN indexes, as the service has it", rawRiver(forTuned, false)),
		throughput("river-post", "raw River, tuned, each job one POST to the same sink", rawRiver(forTuned, true)),
		throughput("webhook", "end to end: accepted in batches, POST, attempt, status and events; a steady load", endToEnd(webhooks, 1, steadyWindow)),
		throughput("webhook-burst", "the same, everything accepted as fast as it goes", endToEnd(webhooks, 1, 0)),
		throughput("webhook-3-nodes", "the steady load on three nodes, which share the events' commit lock", endToEnd(webhooks, 3, steadyWindow)),
		throughput("sms", "end to end through the Twilio adapter", endToEnd(texts, 1, steadyWindow)),
		throughput("email", "end to end over SMTP", endToEnd(mails, 1, steadyWindow)),
		throughput("accept-single", "accepted by POST, 64 clients", accepting(oneByOne)),
		throughput("accept-batch", "accepted in JSON batches of 1000", accepting(inBatches(jsonType, 1000))),
		throughput("accept-ndjson", "accepted in streams of 5000 lines", accepting(inBatches(linesType, 5000))),
		throughput("accept-sql", "dispatcher.enqueue() in SQL, 16 sessions, each in its own transaction", accepting(inSQL)),
		throughput("accept-sql-bulk", "dispatcher.enqueue() in SQL, 1000 a statement, one session", accepting(inSQLBulk)),
		{Name: "latency", Summary: "from POST to the provider's call at ten a second: p99", Unit: millis, run: latency},
		{Name: "slow", Summary: "p99 of a healthy destination at ten a second, beside 1000 messages to one that takes 4 s", Unit: millis, Once: true, run: besideSlow},
		{Name: "breaker", Summary: "from closing a breaker to the first call of what waited for it, a tenth of the backlog", Unit: millis, Once: true, run: breaker},
		{Name: "backlog-waiting", Summary: "the steady load beside a backlog that waits for its time, by that beside a hundredth of it", Unit: fraction, Once: true, run: backlog(true)},
		{Name: "backlog-finished", Summary: "the same beside as many that have ended", Unit: fraction, Once: true, run: backlog(false)},
		{Name: "retention", Summary: "what has ended deleted as fast as it goes, beside the steady load", Unit: perSecond, Once: true, run: retention},
	}
}
