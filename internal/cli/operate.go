package cli

import (
	"context"
	"flag"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// operateCommands are the commands by which an operator puts a hand to breakers
// and channels. They need a key with scope admin.
func operateCommands() []command {
	breaker := func(verb, summary string, ends bool) command {
		return command{
			name: verb, args: "ACCOUNT", summary: summary,
			details: "Every process obeys within about a second. It is kept who did it and why; see dispatcher channels history.\n" +
				"Needs a key with scope admin.",
			setup: setupOperate(verb, ends),
		}
	}
	channel := func(verb, summary string) command {
		return command{
			name: verb, args: "CHANNEL", summary: summary, details: "Needs a key with scope admin.", setup: setupPause(verb),
		}
	}
	return []command{
		breaker("open", "stop all calls of an account, or of a scope below it such as a webhook's host", true),
		breaker("close", "let all calls of an account through, whatever fails", true),
		breaker("reset", "forget what failed and what was forced, and open the gate", false),
		channel("pause", "stop all calls of a channel: its deliveries wait or fall back"),
		channel("resume", "let a paused channel go on"),
		{
			name: "history", args: "[ACCOUNT]", summary: "list what operators did by hand, or how an account's breaker changed",
			details: "Needs a key with scope admin.", setup: setupHistory,
		},
	}
}

func setupOperate(verb string, ends bool) func(*flag.FlagSet) action {
	return func(f *flag.FlagSet) action {
		flags := newAPIFlags(f)
		why := f.String("why", "", "the `reason`, which is kept; must be given")
		scope := f.String("scope", "", "a `scope` below the account, as channels list shows it")
		var end endFlags
		if ends {
			end = newEndFlags(f)
		}
		asJSON := f.Bool("json", false, "print JSON")
		return func(ctx context.Context, e *env, args []string) error {
			switch {
			case len(args) != 1:
				return usagef("channels %s takes the name of one account; see dispatcher channels list", verb)
			case strings.TrimSpace(*why) == "":
				return usagef("--why must be given")
			}
			until, err := end.at(time.Now())
			if err != nil {
				return err
			}
			body := object{"action": verb, "why": *why}
			set(body, "scope", *scope)
			set(body, "until", until)
			answer, err := operate(ctx, e, flags, args[0], "breaker", body)
			if err != nil || *asJSON {
				return orRaw(e, answer, err)
			}
			var v accountView
			if err := decode(answer, &v); err != nil {
				return err
			}
			name := v.Account
			if v.Scope != "" {
				name += " " + v.Scope
			}
			printTo(e.stdout, "%s: breaker %s, gate %s\n", name, v.breaker(), v.gate())
			return nil
		}
	}
}

// endFlags say when something ends by itself.
type endFlags struct {
	until  *string
	length *time.Duration
}

func newEndFlags(f *flag.FlagSet) endFlags {
	return endFlags{
		until:  f.String("until", "", "the `time` when it ends by itself, RFC 3339 (default never)"),
		length: f.Duration("for", 0, "how `long` it holds, in place of --until"),
	}
}

// at is the end that the flags name, as RFC 3339; empty for never, and where there
// are no such flags.
func (f endFlags) at(now time.Time) (string, error) {
	switch {
	case f.until == nil:
		return "", nil
	case *f.until != "" && *f.length != 0:
		return "", usagef("--until and --for do not go together")
	case *f.length < 0:
		return "", usagef("--for must not be negative")
	case *f.length > 0:
		return now.Add(*f.length).UTC().Format(time.RFC3339Nano), nil
	case *f.until != "":
		if _, err := time.Parse(time.RFC3339, *f.until); err != nil {
			return "", usagef("--until must be an RFC 3339 time, such as 2027-12-01T08:00:00Z")
		}
	}
	return *f.until, nil
}

func setupPause(verb string) func(*flag.FlagSet) action {
	return func(f *flag.FlagSet) action {
		flags := newAPIFlags(f)
		why := f.String("why", "", "the `reason`, which is kept; must be given")
		asJSON := f.Bool("json", false, "print JSON")
		return func(ctx context.Context, e *env, args []string) error {
			if len(args) != 1 || !notify.Channel(args[0]).Valid() {
				return usagef("channels %s takes one channel: push, sms, whatsapp, email, slack or webhook", verb)
			}
			if strings.TrimSpace(*why) == "" {
				return usagef("--why must be given")
			}
			answer, err := operate(ctx, e, flags, args[0], verb, object{"why": *why})
			if err != nil || *asJSON {
				return orRaw(e, answer, err)
			}
			var v channelView
			if err := decode(answer, &v); err != nil {
				return err
			}
			state := "runs"
			if v.Paused != nil {
				state = "paused by " + byName(v.Paused.By)
			}
			printTo(e.stdout, "%s: %s\n", v.Channel, state)
			return nil
		}
	}
}

// operate posts to the path of an account or channel.
func operate(ctx context.Context, e *env, flags apiFlags, target, verb string, body object) ([]byte, error) {
	a, err := flags.open(e)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(body, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	return a.call(ctx, http.MethodPost, "/v1/channels/"+url.PathEscape(target)+"/"+verb, http.Header{}, text)
}

// orRaw prints an answer as JSON unless there was an error.
func orRaw(e *env, answer []byte, err error) error {
	if err != nil {
		return err
	}
	return writeRaw(e.stdout, answer)
}
