package cli

import (
	"context"
	"flag"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func suppressionsCommand() command {
	return command{
		name: "suppressions", summary: "see and change the list of addresses that may not be written to",
		sub: []command{
			{
				name: "list", summary: "list the addresses that may not be written to, newest first",
				details: "Addresses are stored as a hash only: what is shown is an id. Look for an address with --recipient.",
				setup:   setupSuppressions,
			},
			{
				name: "add", args: "CHANNEL RECIPIENT", summary: "let an address not be written to",
				details: "Where it is on the list already, and at least for as long, that entry stays as it is. Needs a key with scope admin.",
				setup:   setupSuppress,
			},
			{
				name: "lift", args: "ID", summary: "let an address be written to again",
				details: "Also where the person said stop: make sure that they want it. Needs a key with scope admin.",
				setup:   setupLift,
			},
			{
				name: "history", summary: "list who and what changed the list, newest first",
				details: "Needs a key with scope admin.", setup: setupSuppressionHistory,
			},
		},
	}
}

// suppressionView is what is read of an entry, or of a change of one.
type suppressionView struct {
	ID        string    `json:"id"`
	Reason    string    `json:"reason"`
	Source    string    `json:"source"`
	CreatedAt time.Time `json:"created_at"`
	Until     time.Time `json:"until"`

	At     time.Time `json:"at"`
	Action string    `json:"action"`
	By     string    `json:"by"`
	Why    string    `json:"why"`
}

// suppressionFlags are the filters of both lists.
type suppressionFlags struct {
	api                        apiFlags
	channel, recipient, cursor *string
	limit                      *int
	asJSON                     *bool
}

func newSuppressionFlags(f *flag.FlagSet) suppressionFlags {
	return suppressionFlags{
		api:       newAPIFlags(f),
		channel:   f.String("channel", "", "only this `channel`"),
		recipient: f.String("recipient", "", "only this `address`"),
		cursor:    f.String("cursor", "", "go on with the next page: the `cursor` that the one before ended with"),
		limit:     f.Int("limit", 0, "at most this `number`, 1 to 100 (default 50)"),
		asJSON:    f.Bool("json", false, "print JSON"),
	}
}

// read gets a page, and prints it as JSON or with show.
func (f suppressionFlags) read(ctx context.Context, e *env, path string, query url.Values, show func(suppressionView) []string, head ...string) error {
	add := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	add("channel", *f.channel)
	add("recipient", *f.recipient)
	add("cursor", *f.cursor)
	if *f.limit != 0 {
		query.Set("limit", strconv.Itoa(*f.limit))
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	a, err := f.api.open(e)
	if err != nil {
		return err
	}
	answer, err := a.call(ctx, http.MethodGet, path, nil, nil)
	if err != nil || *f.asJSON {
		return orRaw(e, answer, err)
	}
	var page struct {
		Items []suppressionView `json:"items"`
		Next  string            `json:"next"`
	}
	if err := decode(answer, &page); err != nil {
		return err
	}
	rows := [][]string{head}
	for _, item := range page.Items {
		rows = append(rows, show(item))
	}
	table(e.stdout, rows)
	if page.Next != "" {
		printTo(e.stderr, "there are more: --cursor %s\n", page.Next)
	}
	return nil
}

func setupSuppressions(f *flag.FlagSet) action {
	flags := newSuppressionFlags(f)
	reason := f.String("reason", "", "only those with this `reason`, such as stop or recipient_rejected")
	return func(ctx context.Context, e *env, _ []string) error {
		query := url.Values{}
		if *reason != "" {
			query.Set("reason", *reason)
		}
		return flags.read(ctx, e, "/v1/suppressions", query, suppressionRow, suppressionHead...)
	}
}

var suppressionHead = []string{"ID", "REASON", "SOURCE", "SINCE", "UNTIL"}

func suppressionRow(v suppressionView) []string {
	return []string{v.ID, v.Reason, v.Source, instantText(v.CreatedAt), instantText(v.Until)}
}

func setupSuppressionHistory(f *flag.FlagSet) action {
	flags := newSuppressionFlags(f)
	return func(ctx context.Context, e *env, _ []string) error {
		return flags.read(ctx, e, "/v1/suppressions/history", url.Values{}, func(v suppressionView) []string {
			return []string{instantText(v.At), v.Action, v.ID, v.Reason, v.Source, instantText(v.Until), first(v.By, "-"), first(v.Why, "-")}
		}, "AT", "ACTION", "ID", "REASON", "SOURCE", "UNTIL", "BY", "WHY")
	}
}

func setupSuppress(f *flag.FlagSet) action {
	flags := newAPIFlags(f)
	why := f.String("why", "", "the `reason`, which is kept; must be given")
	ends := newEndFlags(f)
	asJSON := f.Bool("json", false, "print JSON")
	return func(ctx context.Context, e *env, args []string) error {
		if len(args) != 2 || !notify.Channel(args[0]).Valid() {
			return usagef("suppressions add takes a channel (push, sms, whatsapp, email, slack or webhook) and an address")
		}
		if strings.TrimSpace(*why) == "" {
			return usagef("--why must be given")
		}
		until, err := ends.at(time.Now())
		if err != nil {
			return err
		}
		body := object{"channel": args[0], "recipient": args[1], "why": *why}
		set(body, "until", until)
		text, err := json.Marshal(body, json.Deterministic(true))
		if err != nil {
			return err
		}
		a, err := flags.open(e)
		if err != nil {
			return err
		}
		answer, err := a.call(ctx, http.MethodPost, "/v1/suppressions", http.Header{}, text)
		if err != nil || *asJSON {
			return orRaw(e, answer, err)
		}
		var made struct {
			Items []suppressionView `json:"items"`
		}
		if err := decode(answer, &made); err != nil {
			return err
		}
		rows := [][]string{suppressionHead}
		for _, item := range made.Items {
			rows = append(rows, suppressionRow(item))
		}
		table(e.stdout, rows)
		return nil
	}
}

func setupLift(f *flag.FlagSet) action {
	flags := newAPIFlags(f)
	why := f.String("why", "", "the `reason`, which is kept; must be given")
	return func(ctx context.Context, e *env, args []string) error {
		switch {
		case len(args) != 1:
			return usagef("suppressions lift takes one id; see dispatcher suppressions list")
		case strings.TrimSpace(*why) == "":
			return usagef("--why must be given")
		}
		a, err := flags.open(e)
		if err != nil {
			return err
		}
		_, err = a.call(ctx, http.MethodDelete, "/v1/suppressions/"+url.PathEscape(args[0])+"?"+url.Values{"why": {*why}}.Encode(), nil, nil)
		if err != nil {
			return err
		}
		printTo(e.stdout, "%s: lifted\n", args[0])
		return nil
	}
}
