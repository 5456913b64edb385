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

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func channelsCommand() command {
	return command{
		name: "channels", summary: "see the health of the channels, and put a hand to them",
		sub: append([]command{{
			name: "list", summary: "list channels and accounts with breaker, gate and backlog, from a running service",
			setup: func(f *flag.FlagSet) action {
				flags := newAPIFlags(f)
				asJSON := f.Bool("json", false, "print JSON")
				return func(ctx context.Context, e *env, _ []string) error { return channelsList(ctx, e, flags, *asJSON) }
			},
		}}, operateCommands()...),
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
		Queued     int64                       `json:"queued"`
		Waiting    map[notify.WaitReason]int64 `json:"waiting"`
		OldestHeld float64                     `json:"oldest_held_seconds"`
	} `json:"backlog"`
}

type accountView struct {
	Account  string `json:"account"`
	Provider string `json:"provider"`
	scopeView
	Scopes     []scopeView `json:"scopes"`
	MoreScopes bool        `json:"more_scopes"`
}

// scopeView is what is read of an account or of a scope below it.
type scopeView struct {
	Scope   string `json:"scope"`
	Breaker struct {
		State       string    `json:"state"`
		Because     string    `json:"because"`
		OpenUntil   time.Time `json:"open_until"`
		Forced      bool      `json:"forced"`
		ForcedBy    string    `json:"forced_by"`
		ForcedWhy   string    `json:"forced_why"`
		ForcedUntil time.Time `json:"forced_until"`
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

// rows are a line for each account and one for each scope below it that is in
// trouble; what holds for the channel stands on the first.
func (c *channelView) rows() [][]string {
	name := string(c.Channel)
	if c.Paused != nil {
		name += " (paused)"
		if c.Paused.By != "" {
			name = string(c.Channel) + " (paused by " + byName(c.Paused.By) + ")"
		}
	}
	queued, waiting := strconv.FormatInt(c.Backlog.Queued, 10), waitingText(c.Backlog.Waiting)
	if c.Backlog.OldestHeld >= 1 {
		waiting += ", held for " + (time.Duration(c.Backlog.OldestHeld) * time.Second).String()
	}
	if len(c.Accounts) == 0 {
		return [][]string{{name, "-", "-", "-", "-", queued, waiting}}
	}
	var rows [][]string
	for _, a := range c.Accounts {
		rows = append(rows, []string{"", a.Account, a.Provider, a.breaker(), a.gate(), "", ""})
		for _, s := range a.Scopes {
			rows = append(rows, []string{"", "  " + s.Scope, "", s.breaker(), s.gate(), "", ""})
		}
		if a.MoreScopes {
			rows = append(rows, []string{"", "  and more", "", "", "", "", ""})
		}
	}
	rows[0][0], rows[0][5], rows[0][6] = name, queued, waiting
	return rows
}

func (s *scopeView) breaker() string {
	text := s.Breaker.State
	if !s.Breaker.OpenUntil.IsZero() && !s.Breaker.Forced {
		text += " until " + s.Breaker.OpenUntil.UTC().Format(time.TimeOnly)
	}
	switch {
	case s.Breaker.Forced:
		text += ", forced"
		if s.Breaker.ForcedBy != "" {
			text += " by " + byName(s.Breaker.ForcedBy)
		}
		if !s.Breaker.ForcedUntil.IsZero() {
			text += " until " + s.Breaker.ForcedUntil.UTC().Format(time.RFC3339)
		}
	case s.Breaker.State != "closed" && s.Breaker.Because != "":
		text += " (" + s.Breaker.Because + ")"
	}
	return text
}

// byName leaves out the key's id behind its name, which history shows.
func byName(by string) string {
	i := strings.LastIndex(by, " (")
	if i < 0 || !strings.HasSuffix(by, ")") || uuid.Validate(by[i+2:len(by)-1]) != nil {
		return by
	}
	return by[:i]
}

func (s *scopeView) gate() string {
	if s.Gate.Until.IsZero() {
		return "open"
	}
	return "shut until " + s.Gate.Until.UTC().Format(time.TimeOnly)
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
