package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func showCommand() command {
	return command{
		name: "show", args: "ID", summary: "tell a notification's story: its steps, calls, receipts and waits in order",
		setup: func(f *flag.FlagSet) action {
			flags := newAPIFlags(f)
			asJSON := f.Bool("json", false, "print JSON")
			return func(ctx context.Context, e *env, args []string) error {
				id, err := notificationArg("show", args)
				if err != nil {
					return err
				}
				a, err := flags.open(e)
				if err != nil {
					return err
				}
				answer, err := a.call(ctx, http.MethodGet, "/v1/notifications/"+url.PathEscape(id.String()), nil, nil)
				if err != nil {
					return err
				}
				if *asJSON {
					return writeRaw(e.stdout, answer)
				}
				var s storyView
				if err := decode(answer, &s); err != nil {
					return err
				}
				s.print(e.stdout)
				return nil
			}
		},
	}
}

// storyView is what show reads of a notification.
type storyView struct {
	view
	Timeline []entryView `json:"timeline"`
}

type entryView struct {
	At           time.Time      `json:"at"`
	Type         string         `json:"type"`
	Step         *int           `json:"step"`
	Target       *int           `json:"target"`
	Channel      notify.Channel `json:"channel"`
	Account      string         `json:"account"`
	Because      string         `json:"because"`
	Until        time.Time      `json:"until"`
	N            int            `json:"n"`
	Outcome      notify.Outcome `json:"outcome"`
	Status       notify.Status  `json:"status"`
	ProviderCode string         `json:"provider_code"`
}

// print writes a line for each entry, and how things are now.
func (s *storyView) print(w io.Writer) {
	day := ""
	for i := range s.Timeline {
		e := &s.Timeline[i]
		if d := e.At.UTC().Format(time.DateOnly); d != day {
			day = d
			printTo(w, "%s\n", day)
		}
		printTo(w, "%s\n", strings.TrimRight(fmt.Sprintf("%s  %-9s %-9s %s", e.At.UTC().Format("15:04:05.000"), e.where(), e.Type, e.note()), " "))
	}
	for _, line := range progressLines(&s.view) {
		printTo(w, "%s\n", line)
	}
}

// where is the step's channel, with the target where it is not the first.
func (e *entryView) where() string {
	switch {
	case e.Step == nil:
		return "="
	case e.Target != nil && *e.Target > 0:
		return fmt.Sprintf("%s/%d", e.Channel, *e.Target)
	}
	return string(e.Channel)
}

// note says what an entry is about.
func (e *entryView) note() string {
	var parts []string
	add := func(s string) {
		if s != "" {
			parts = append(parts, s)
		}
	}
	add(e.Account)
	if e.N > 1 {
		add(fmt.Sprintf("call %d", e.N))
	}
	add(string(e.Status))
	add(string(e.Outcome))
	if e.ProviderCode != "" {
		add("(" + e.ProviderCode + ")")
	}
	add(e.Because)
	if !e.Until.IsZero() {
		add("until " + e.Until.UTC().Format(time.TimeOnly))
	}
	return strings.Join(parts, " ")
}
