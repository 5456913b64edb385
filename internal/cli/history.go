package cli

import (
	"context"
	"flag"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

func setupHistory(f *flag.FlagSet) action {
	flags := newAPIFlags(f)
	scope := f.String("scope", "", "a `scope` below the account")
	limit := f.Int("limit", 0, "at most this `number`, 1 to 100 (default 50), of what operators did")
	asJSON := f.Bool("json", false, "print JSON")
	return func(ctx context.Context, e *env, args []string) error {
		switch {
		case len(args) > 1:
			return usagef("channels history takes the name of one account at most")
		case len(args) == 0 && *scope != "":
			return usagef("--scope needs an account")
		case len(args) == 1 && *limit != 0:
			return usagef("--limit does not go with an account, whose last 50 changes are shown")
		}
		path, query, show := "/v1/channels/actions", url.Values{}, showActions
		if len(args) == 1 {
			path, show = "/v1/channels/"+url.PathEscape(args[0])+"/breaker", showTransitions
		}
		if *scope != "" {
			query.Set("scope", *scope)
		}
		if *limit != 0 {
			query.Set("limit", strconv.Itoa(*limit))
		}
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
		a, err := flags.open(e)
		if err != nil {
			return err
		}
		answer, err := a.call(ctx, http.MethodGet, path, nil, nil)
		if err != nil || *asJSON {
			return orRaw(e, answer, err)
		}
		return show(e, answer)
	}
}

func showActions(e *env, answer []byte) error {
	var list struct {
		Items []struct {
			At     time.Time `json:"at"`
			Action string    `json:"action"`
			Target string    `json:"target"`
			By     string    `json:"by"`
			Why    string    `json:"why"`
			Until  time.Time `json:"until"`
		} `json:"items"`
	}
	if err := decode(answer, &list); err != nil {
		return err
	}
	rows := [][]string{{"AT", "ACTION", "TARGET", "UNTIL", "BY", "WHY"}}
	for _, d := range list.Items {
		rows = append(rows, []string{instantText(d.At), d.Action, d.Target, instantText(d.Until), d.By, d.Why})
	}
	table(e.stdout, rows)
	return nil
}

func showTransitions(e *env, answer []byte) error {
	var v struct {
		accountView
		Transitions []struct {
			At     time.Time `json:"at"`
			From   string    `json:"from"`
			To     string    `json:"to"`
			Reason string    `json:"reason"`
			Until  time.Time `json:"until"`
			By     string    `json:"by"`
			Why    string    `json:"why"`
		} `json:"transitions"`
	}
	if err := decode(answer, &v); err != nil {
		return err
	}
	rows := [][]string{{"AT", "FROM", "TO", "REASON", "UNTIL", "BY", "WHY"}}
	for _, t := range v.Transitions {
		rows = append(rows, []string{instantText(t.At), t.From, t.To, t.Reason, instantText(t.Until), first(t.By, "-"), first(t.Why, "-")})
	}
	printTo(e.stdout, "breaker %s, gate %s\n\n", v.breaker(), v.gate())
	table(e.stdout, rows)
	return nil
}

// instantText is an instant to the second, and a dash for none.
func instantText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
