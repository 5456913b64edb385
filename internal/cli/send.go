package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"

	"github.com/google/uuid"
)

func sendCommand() command {
	return command{
		name: "send", summary: "send a notification through a running service",
		details: `The notification is made from the flags, from a JSON file, or from both: flags win. Examples:

  dispatcher send --to-sms +14155550100 --to-email ana@example.com --title 'Deploy failed' --body 'api: 3 of 5 pods are down' --watch
  dispatcher send --to-push fcm:TOKEN --to-slack '#ops' --to-webhook https://example.com/hook --mode all \
    --chain push,slack,webhook --body 'Hello'
  dispatcher send --file notification.json --watch
  dispatcher send --file many.ndjson

A file whose name ends in .ndjson or .jsonl has a notification in each line, up to 10,000. Each is answered by itself.`,
		setup: setupSend,
	}
}

// sendFlags are the flags of send.
type sendFlags struct {
	api     apiFlags
	message *messageFlags
	key     *string
	watch   *bool
	planned *bool
	asJSON  *bool
}

func setupSend(f *flag.FlagSet) action {
	s := sendFlags{
		api:     newAPIFlags(f),
		message: newMessageFlags(f),
		key:     f.String("idempotency-key", "", "send nothing a second time with the same `key` (default a new one)"),
		watch:   f.Bool("watch", false, "wait for the end and show what happens"),
		planned: f.Bool("plan", false, "show what would become of it, and send nothing"),
		asJSON:  f.Bool("json", false, "print JSON"),
	}
	return func(ctx context.Context, e *env, _ []string) error { return s.run(ctx, e) }
}

func (s sendFlags) run(ctx context.Context, e *env) error {
	key := *s.key
	if key == "" {
		key = uuid.NewString()
	}
	if isBatch(*s.message.file) {
		if *s.planned || *s.watch {
			return usagef("--plan and --watch are for one notification, and %s has many", *s.message.file)
		}
		return s.batch(ctx, e, key)
	}
	body, err := s.message.body(e)
	if err != nil {
		return err
	}
	if *s.planned {
		return s.plan(ctx, e, body)
	}
	a, err := s.api.open(e)
	if err != nil {
		return err
	}
	answer, err := a.call(ctx, http.MethodPost, "/v1/notifications", http.Header{"Idempotency-Key": {key}}, body)
	if err != nil {
		return repeatable(err, key)
	}
	if *s.asJSON && !*s.watch {
		return writeRaw(e.stdout, answer)
	}
	var accepted struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	if err := decode(answer, &accepted); err != nil {
		return err
	}
	if !*s.watch {
		_, err = fmt.Fprintf(e.stdout, "%s %s\n", accepted.ID, accepted.Status)
		return err
	}
	return watch(ctx, e, a, accepted.ID, *s.asJSON)
}

// repeatable adds to an error, after which nobody knows whether the notification
// was accepted, how to find out.
func repeatable(err error, key string) error {
	if problem, ok := errors.AsType[*apiError](err); ok && problem.Status < http.StatusInternalServerError {
		return err
	}
	return fmt.Errorf("%w\n  --idempotency-key %s repeats it without a second notification", err, key)
}
