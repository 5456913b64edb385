package cli

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// plan shows what would become of a notification and sends nothing.
func (s sendFlags) plan(ctx context.Context, e *env, body []byte) error {
	a, err := s.api.open(e)
	if err != nil {
		return err
	}
	answer, err := a.call(ctx, http.MethodPost, "/v1/notifications?plan=true", http.Header{}, body)
	if err != nil {
		return err
	}
	var p planned
	if err := decode(answer, &p); err != nil {
		return err
	}
	if *s.asJSON {
		err = writeRaw(e.stdout, answer)
	} else {
		p.print(e)
	}
	if err == nil && !p.Acceptable {
		err = errFailed
	}
	return err
}

// planned is the answer to a plan, as far as it is printed.
type planned struct {
	Acceptable bool `json:"acceptable"`
	Steps      []struct {
		Channel  string `json:"channel"`
		Targets  int    `json:"targets"`
		Accounts []struct {
			Account string `json:"account"`
			Breaker struct {
				State string `json:"state"`
			} `json:"breaker"`
		} `json:"accounts"`
		Paused       bool      `json:"paused"`
		EarliestCall time.Time `json:"earliest_call"`
		Preview      struct {
			Title    string `json:"title"`
			Subject  string `json:"subject"`
			Body     string `json:"body"`
			Segments int    `json:"segments"`
			Encoding string `json:"encoding"`
		} `json:"preview"`
		Problems []fieldError `json:"problems"`
	} `json:"steps"`
}

func (p *planned) print(e *env) {
	rows := [][]string{{"STEP", "CHANNEL", "ACCOUNTS", "TARGETS", "NOT BEFORE", "SHOWN"}}
	for i, s := range p.Steps {
		var accounts []string
		for _, a := range s.Accounts {
			name := a.Account
			if a.Breaker.State != "" && a.Breaker.State != "closed" {
				name += " (" + a.Breaker.State + ")"
			}
			accounts = append(accounts, name)
		}
		when := "unknown"
		switch {
		case s.Paused:
			when = "paused"
		case !s.EarliestCall.IsZero():
			when = s.EarliestCall.Local().Format(time.DateTime)
		}
		shown := strconv.Quote(first(s.Preview.Subject, s.Preview.Title, s.Preview.Body))
		if s.Preview.Segments > 0 {
			shown += fmt.Sprintf(" %s, %s", plural(s.Preview.Segments, "segment"), s.Preview.Encoding)
		}
		rows = append(rows, []string{strconv.Itoa(i), s.Channel, strings.Join(accounts, ","), strconv.Itoa(s.Targets), when, shown})
	}
	table(e.stdout, rows)
	for i, s := range p.Steps {
		for _, f := range s.Problems {
			printTo(e.stdout, "step %d: %s: %s\n", i, first(f.Pointer, "/"), f.Detail)
		}
	}
}
