package cli

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

func cancelCommand() command {
	return command{
		name: "cancel", args: "ID", summary: "stop a notification",
		details: "Prints what came of it. Exits with 1 where it is too late: a call was made or is under way.",
		setup:   setupAct("cancel", func(result string) bool { return result != "too_late" }),
	}
}

func ackCommand() command {
	return command{
		name: "ack", args: "ID", summary: "say that the person has seen a notification, which stops what has not been sent",
		setup: setupAct("ack", func(string) bool { return true }),
	}
}

// setupAct makes a command that posts to a notification's path. good tells
// results that are what was asked for.
func setupAct(verb string, good func(result string) bool) func(*flag.FlagSet) action {
	return func(f *flag.FlagSet) action {
		flags := newAPIFlags(f)
		asJSON := f.Bool("json", false, "print JSON")
		return func(ctx context.Context, e *env, args []string) error {
			id, err := notificationArg(verb, args)
			if err != nil {
				return err
			}
			a, err := flags.open(e)
			if err != nil {
				return err
			}
			return a.act(ctx, e, id, verb, nil, *asJSON, good)
		}
	}
}

func notificationArg(verb string, args []string) (uuid.UUID, error) {
	if len(args) != 1 {
		return uuid.Nil, usagef("%s takes the id of one notification", verb)
	}
	id, err := uuid.Parse(args[0])
	if err != nil {
		return uuid.Nil, usagef("%q is not the id of a notification", args[0])
	}
	return id, nil
}

// act posts to a notification's path and prints the result.
func (a *api) act(ctx context.Context, e *env, id uuid.UUID, verb string, body []byte, asJSON bool, good func(string) bool) error {
	answer, err := a.call(ctx, http.MethodPost, "/v1/notifications/"+url.PathEscape(id.String())+"/"+verb, http.Header{}, body)
	if err != nil {
		return err
	}
	var v struct {
		Result string `json:"result"`
	}
	if err := decode(answer, &v); err != nil {
		return err
	}
	if asJSON {
		err = writeRaw(e.stdout, answer)
	} else {
		_, err = fmt.Fprintf(e.stdout, "%s %s\n", id, v.Result)
	}
	if err == nil && !good(v.Result) {
		err = errFailed
	}
	return err
}

func retryCommand() command {
	return command{
		name: "retry", args: "[ID]", summary: "start failed notifications again",
		details: `With an ID that one; without, those that the flags select, newest first, up to --limit. A dry run counts them:

  dispatcher retry --status failed --channel sms --because provider_unavailable --dry-run
  dispatcher retry 01937f00-0000-7000-8000-000000000001 --expires-in 2h

Many need a key with scope admin, one a key with scope send.`,
		setup: setupRetry,
	}
}

// retryFlags are the flags of retry.
type retryFlags struct {
	api                                     apiFlags
	status, channel, because, after, before *string
	limit                                   *int
	lifetime                                *time.Duration
	dryRun, asJSON                          *bool
}

func setupRetry(f *flag.FlagSet) action {
	r := retryFlags{
		api:      newAPIFlags(f),
		status:   f.String("status", "", "only those that ended with this `status`: failed, partially_failed, expired or suppressed"),
		channel:  f.String("channel", "", "only those that failed on this `channel`"),
		because:  f.String("because", "", "only those that failed for this `reason`, such as provider_unavailable"),
		after:    f.String("created-after", "", "only those created at this `time` or later"),
		before:   f.String("created-before", "", "only those created before this `time`"),
		limit:    f.Int("limit", 0, "at most this `number`, 1 to 1000 (default 100)"),
		lifetime: f.Duration("expires-in", 0, "how `long` they may be sent (default as long as at first)"),
		dryRun:   f.Bool("dry-run", false, "count only"),
		asJSON:   f.Bool("json", false, "print JSON"),
	}
	return r.run
}

func (r retryFlags) run(ctx context.Context, e *env, args []string) error {
	body := object{}
	for name, value := range map[string]*string{
		"status": r.status, "channel": r.channel, "because": r.because, "created_after": r.after, "created_before": r.before,
	} {
		set(body, name, *value)
	}
	if *r.limit != 0 {
		body["limit"] = *r.limit
	}
	if *r.dryRun {
		body["dry_run"] = true
	}
	if len(args) > 0 && len(body) > 0 {
		return usagef("retry takes either the id of a notification or flags that select some")
	}
	if *r.lifetime != 0 {
		body["expires_at"] = time.Now().Add(*r.lifetime).UTC().Format(time.RFC3339)
	}
	text, err := json.Marshal(body, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	if len(args) > 0 {
		id, err := notificationArg("retry", args)
		if err != nil {
			return err
		}
		a, err := r.api.open(e)
		if err != nil {
			return err
		}
		return a.act(ctx, e, id, "retry", text, *r.asJSON, func(result string) bool { return result == "retried" })
	}
	a, err := r.api.open(e)
	if err != nil {
		return err
	}
	return r.many(ctx, e, a, text)
}

func (r retryFlags) many(ctx context.Context, e *env, a *api, body []byte) error {
	answer, err := a.call(ctx, http.MethodPost, "/v1/notifications/retry", http.Header{}, body)
	if err != nil {
		return err
	}
	if *r.asJSON {
		return writeRaw(e.stdout, answer)
	}
	var v struct {
		Matched int  `json:"matched"`
		Retried int  `json:"retried"`
		More    bool `json:"more"`
	}
	if err := decode(answer, &v); err != nil {
		return err
	}
	if *r.dryRun {
		printTo(e.stdout, "%s would begin again\n", plural(v.Matched, "notification"))
	} else {
		printTo(e.stdout, "%s begin again\n", plural(v.Retried, "notification"))
	}
	if v.More {
		printTo(e.stderr, "There are older ones too: run it once more.\n")
	}
	return nil
}
