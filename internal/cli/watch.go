package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

// How often a notification is asked for: where its events cannot be followed, and
// where each of them is an occasion to ask.
const (
	watchEvery = 250 * time.Millisecond
	watchCalm  = 5 * time.Second
)

func watchCommand() command {
	return command{
		name: "watch", args: "ID", summary: "show what happens to a notification until it has been sent or failed",
		details: "In a terminal every step has a line that is redrawn; elsewhere each change is a line of its own.\n" +
			"It succeeds where the notification was sent, delivered or read.",
		setup: func(f *flag.FlagSet) action {
			flags := newAPIFlags(f)
			asJSON := f.Bool("json", false, "print the notification as JSON at the end, and nothing before")
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) != 1 {
					return usagef("watch takes the id of one notification")
				}
				a, err := flags.open(e)
				if err != nil {
					return err
				}
				return watch(ctx, e, a, args[0], *asJSON)
			}
		},
	}
}

// view is what watch reads of a notification.
type view struct {
	ID         string        `json:"id"`
	Status     notify.Status `json:"status"`
	FinishedAt time.Time     `json:"finished_at"`
	Waiting    waitView      `json:"waiting"`
	Steps      []stepView    `json:"steps"`
}

type waitView struct {
	Reason notify.WaitReason `json:"reason"`
	Until  time.Time         `json:"until"`
}

type stepView struct {
	Channel  notify.Channel   `json:"channel"`
	Status   notify.Status    `json:"status"`
	Success  notify.Criterion `json:"success"`
	Because  string           `json:"because"`
	Waiting  waitView         `json:"waiting"`
	Attempts []attemptView    `json:"attempts"`
	Receipts []receiptNote    `json:"receipts"`
}

type receiptNote struct {
	Status       notify.Status `json:"status"`
	ProviderCode string        `json:"provider_code"`
}

type attemptView struct {
	Account      string         `json:"account"`
	Outcome      notify.Outcome `json:"outcome"`
	ProviderCode string         `json:"provider_code"`
	DurationMS   float64        `json:"duration_ms"`
}

// over reports whether there is nothing more to wait for: the notification has
// ended, or was sent as well as its chain asks and only later receipts may come.
func (v *view) over() bool {
	if !v.FinishedAt.IsZero() {
		return true
	}
	if !succeeded(v.Status) {
		return false
	}
	return !slices.ContainsFunc(v.Steps, func(s stepView) bool { return succeeded(s.Status) && !s.Success.MetBy(s.Status) })
}

func succeeded(s notify.Status) bool {
	return s == notify.Sent || s == notify.Delivered || s == notify.Read
}

// watch follows a notification until it is over. The error is errFailed where it
// was not sent.
func watch(ctx context.Context, e *env, a *api, id string, asJSON bool) error {
	var out progress = &plainProgress{w: e.stdout}
	switch {
	case asJSON:
		out = silentProgress{}
	case telemetry.Terminal(e.stdout):
		out = &liveProgress{w: e.stdout}
	}
	var news *changes // once there is something to wait for
	defer func() { news.stop() }()
	for {
		answer, pause, err := poll(ctx, a, id)
		if err != nil {
			return err
		}
		if answer != nil {
			var v view
			if err := decode(answer, &v); err != nil {
				return err
			}
			out.show(&v, time.Now())
			if v.over() {
				return finish(e, &v, answer, asJSON)
			}
			if news == nil {
				news = followChanges(ctx, a, id)
			}
		}
		if !news.await(ctx, pause, answer != nil) {
			return fmt.Errorf("stopped watching; notification %s goes on", id)
		}
	}
}

// poll asks once. A service that is away for a moment, or asks for quiet, is asked
// again after the pause.
func poll(ctx context.Context, a *api, id string) (answer []byte, pause time.Duration, err error) {
	answer, err = a.call(ctx, http.MethodGet, "/v1/notifications/"+url.PathEscape(id), nil, nil)
	problem, answered := errors.AsType[*apiError](err)
	switch {
	case err == nil:
		return answer, watchEvery, nil
	case ctx.Err() != nil:
		return nil, watchEvery, nil //nolint:nilerr // the person ended it
	case !answered:
		return nil, 0, err
	case problem.Status == http.StatusTooManyRequests, problem.Status >= http.StatusInternalServerError:
		return nil, max(problem.RetryAfter, 4*watchEvery), nil
	}
	return nil, 0, err
}

func finish(e *env, v *view, answer []byte, asJSON bool) error {
	if asJSON {
		if err := writeRaw(e.stdout, answer); err != nil {
			return err
		}
	}
	if !succeeded(v.Status) {
		return errFailed
	}
	return nil
}
