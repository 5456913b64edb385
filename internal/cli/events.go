package cli

import (
	"cmp"
	"context"
	"flag"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

func eventsCommand() command {
	return command{
		name: "events", args: "[ID]", summary: "print what happens to the project's notifications, or to one of them",
		details: "Without --follow it prints what has happened so far and is still kept; with it, what happens from now on, until it is\n" +
			"stopped. A stream that breaks is taken up where it was: nothing is missed and nothing printed twice.",
		setup: func(f *flag.FlagSet) action {
			flags := newAPIFlags(f)
			q := &eventsQuery{}
			f.BoolVar(&q.follow, "follow", false, "print what happens from now on, or after the cursor")
			f.StringVar(&q.after, "after", "", "begin after this `cursor`, or at start or now")
			f.StringVar(&q.types, "types", "", "only events of these `types`, separated by commas")
			f.BoolVar(&q.final, "final", false, "only events that end a notification")
			f.BoolVar(&q.asJSON, "json", false, "print each event as a line of JSON")
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) > 1 {
					return usagef("events takes the id of one notification")
				}
				a, err := flags.open(e)
				if err != nil {
					return err
				}
				q.path = "/v1/events"
				if len(args) == 1 {
					q.path = "/v1/notifications/" + url.PathEscape(args[0]) + "/events"
				}
				if q.follow {
					return q.stream(ctx, e.stdout, a)
				}
				return q.pages(ctx, e.stdout, a)
			}
		},
	}
}

// eventsQuery is what the flags of events say.
type eventsQuery struct {
	path, after, types    string
	follow, final, asJSON bool
}

func (q *eventsQuery) values() url.Values {
	v := url.Values{}
	if q.after != "" {
		v.Set("after", q.after)
	}
	if q.types != "" {
		v.Set("types", q.types)
	}
	if q.final {
		v.Set("final", "true")
	}
	return v
}

// pages prints page after page to the end.
func (q *eventsQuery) pages(ctx context.Context, w io.Writer, a *api) error {
	for {
		v := q.values()
		v.Set("limit", "1000")
		answer, err := a.call(ctx, http.MethodGet, q.path+"?"+v.Encode(), nil, nil)
		if err != nil {
			return err
		}
		var page struct {
			Items []jsontext.Value `json:"items"`
			Next  string           `json:"next"`
			More  bool             `json:"more"`
		}
		if err := decode(answer, &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			if err := q.print(w, item); err != nil {
				return err
			}
		}
		if !page.More {
			return nil
		}
		q.after = page.Next
	}
}

// stream prints what comes until ctx ends. A stream that breaks is opened again,
// as a browser does.
func (q *eventsQuery) stream(ctx context.Context, w io.Writer, a *api) error {
	last, pause := "", streamPause
	for {
		var printing error
		err := a.stream(ctx, q.path, q.values(), last, func(b block) error {
			if b.data != "" {
				if printing = q.print(w, jsontext.Value(b.data)); printing != nil {
					return printing
				}
			}
			last, pause = cmp.Or(b.id, last), cmp.Or(b.retry, pause)
			return nil
		})
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the person ended it
		case printing != nil, refused(err), last == "":
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// eventLine is what a line of text says of an event.
type eventLine struct {
	At             time.Time `json:"at"`
	NotificationID string    `json:"notification_id"`
	Type           string    `json:"type"`
	Channel        string    `json:"channel"`
	Because        string    `json:"because"`
	Final          bool      `json:"final"`
	Status         string    `json:"status"`
}

// print writes one event on a line.
func (q *eventsQuery) print(w io.Writer, item jsontext.Value) error {
	if q.asJSON {
		_, err := io.WriteString(w, string(item)+"\n")
		return err
	}
	var v eventLine
	if err := decode(item, &v); err != nil {
		return err
	}
	note := v.Because
	if v.Final {
		note = strings.TrimSpace(note + " = " + v.Status)
	}
	line := v.At.UTC().Format(time.RFC3339) + "  " + v.NotificationID + "  " + pad(v.Type, 12) + pad(v.Channel, 10) + note
	_, err := io.WriteString(w, strings.TrimRight(line, " ")+"\n")
	return err
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-len(s), 1))
}
