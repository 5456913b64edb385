package bench

import "context"

// Scenario is one thing that is measured.
type Scenario struct {
	Name    string
	Summary string
	Unit    string
	// Once: it is long, compares within itself, and is measured in one round only.
	Once bool
	// Lower says that less is better, and nothing is compared with River.
	Lower bool

	run func(context.Context, *bench) (Sample, error)
}

// The scenarios that others are compared with.
const (
	reference      = "river"
	tunedReference = "river-tuned"
)

// perSecond is the unit of throughputs, which are compared with River's.
const perSecond = "/s"

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
	}
}
