package cli

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func channelsCommand() command {
	return command{
		name: "channels", summary: "see the health of the channels",
		sub: []command{{
			name: "list", summary: "list channels and accounts with breaker, gate and backlog, from a running service",
			setup: func(f *flag.FlagSet) action {
				flags := newAPIFlags(f)
				asJSON := f.Bool("json", false, "print JSON")
				return func(ctx context.Context, e *env, _ []string) error { return channelsList(ctx, e, flags, *asJSON) }
			},
		}},
	}
}

// channelView is what is read of a channel.
type channelView struct {
	Channel notify.Channel `json:"channel"`
	Paused  *struct {
		By string `json:"by"`
	} `json:"paused"`
	Accounts []accountView `json:"accounts"`
	Backlog  struct {
		Queued  int64                       `json:"queued"`
		Waiting map[notify.WaitReason]int64 `json:"waiting"`
	} `json:"backlog"`
}

type accountView struct {
	Account  string `json:"account"`
	Provider string `json:"provider"`
	Breaker  struct {
		State     string    `json:"state"`
		OpenUntil time.Time `json:"open_until"`
		Forced    bool      `json:"forced"`
	} `json:"breaker"`
	Gate struct {
		Until time.Time `json:"until"`
	} `json:"gate"`
}

func channelsList(ctx context.Context, e *env, flags apiFlags, asJSON bool) error {
	a, err := flags.open(e)
	if err != nil {
		return err
	}
	answer, err := a.call(ctx, http.MethodGet, "/v1/channels", nil, nil)
	if err != nil {
		return err
	}
	if asJSON {
		return writeRaw(e.stdout, answer)
	}
	var list struct {
		Items []channelView `json:"items"`
	}
	if err := decode(answer, &list); err != nil {
		return err
	}
	rows := [][]string{{"CHANNEL", "ACCOUNT", "PROVIDER", "BREAKER", "GATE", "QUEUED", "WAITING"}}
	for _, c := range list.Items {
		rows = append(rows, c.rows()...)
	}
	table(e.stdout, rows)
	return nil
}

// rows are a line for each account; what holds for the channel stands on the
// first.
func (c *channelView) rows() [][]string {
	name := string(c.Channel)
	if c.Paused != nil {
		name += " (paused by " + c.Paused.By + ")"
	}
	queued, waiting := strconv.FormatInt(c.Backlog.Queued, 10), waitingText(c.Backlog.Waiting)
	if len(c.Accounts) == 0 {
		return [][]string{{name, "-", "-", "-", "-", queued, waiting}}
	}
	rows := make([][]string, len(c.Accounts))
	for i, a := range c.Accounts {
		rows[i] = []string{"", a.Account, a.Provider, a.breaker(), a.gate(), "", ""}
	}
	rows[0][0], rows[0][5], rows[0][6] = name, queued, waiting
	return rows
}

func (a *accountView) breaker() string {
	text := a.Breaker.State
	if !a.Breaker.OpenUntil.IsZero() {
		text += " until " + a.Breaker.OpenUntil.UTC().Format(time.TimeOnly)
	}
	if a.Breaker.Forced {
		text += ", forced"
	}
	return text
}

func (a *accountView) gate() string {
	if a.Gate.Until.IsZero() {
		return "open"
	}
	return "shut until " + a.Gate.Until.UTC().Format(time.TimeOnly)
}

func waitingText(waiting map[notify.WaitReason]int64) string {
	if len(waiting) == 0 {
		return "0"
	}
	parts := make([]string, 0, len(waiting))
	for _, reason := range slices.Sorted(maps.Keys(waiting)) {
		parts = append(parts, fmt.Sprintf("%d %s", waiting[reason], reason))
	}
	return strings.Join(parts, ", ")
}
