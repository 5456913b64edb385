package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/client"
)

// stand is a service that answers the examples.
func stand() *httptest.Server {
	const status = `{"id":"0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b","status":"sent","reference":"incident-4711","steps":[{"channel":"push","status":"failed"},{"channel":"sms","status":"sent"}]}`
	mux := http.NewServeMux()
	answer := func(pattern string, code int, kind, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		})
	}
	answer("POST /v1/notifications", 202, "application/json", `{"id":"0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b","status":"queued","chain":[]}`)
	answer("GET /v1/notifications", 200, "application/json", `{"items":[`+status+`]}`)
	answer("GET /v1/notifications/{id}", 404, "application/problem+json", `{"status":404,"code":"not_found","detail":"There is no such thing in the project of this key."}`)
	answer("POST /v1/notifications/{id}/cancel", 200, "application/json", `{"result":"too_late"}`)
	answer("GET /v1/events", 200, "text/event-stream", "retry: 2000\n:\nid: AQAA\n\n"+
		`id: AQAB`+"\n"+`data: {"id":"AQAB","type":"sent","notification_id":"0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b","channel":"sms","final":true,"status":"sent"}`+"\n\n")
	return httptest.NewServer(mux)
}

func ExampleClient_Send() {
	server := stand()
	defer server.Close()

	c, err := client.New(server.URL, "dsp_…")
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // bounds all tries
	defer cancel()
	accepted, err := c.Send(ctx, client.Notification{
		To: client.To{
			Push: []client.Device{{Provider: "fcm", Token: "device-token"}},
			SMS:  "+14155550100",
		},
		Chain: []client.Step{
			{Channel: client.Push},
			{Channel: client.SMS, Success: client.Delivered, Within: client.Duration(90 * time.Second)},
		},
		Content:   client.Content{Title: "Deploy failed", Body: "api: 3 of 5 pods are down"},
		Priority:  client.High,
		Reference: "incident-4711",
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(accepted.ID, accepted.Status)
	// Output: 0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b queued
}

func ExampleClient_List() {
	server := stand()
	defer server.Close()

	c, err := client.New(server.URL, "dsp_…")
	if err != nil {
		panic(err)
	}
	for n, err := range c.List(context.Background(), client.Filter{Reference: "incident-4711"}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(n.Status, len(n.Steps))
	}
	// Output: sent 2
}

// The cursor is stored with what an event led to, so that a program which is
// started again goes on behind it.
func ExampleClient_Events() {
	server := stand()
	defer server.Close()

	c, err := client.New(server.URL, "dsp_…")
	if err != nil {
		panic(err)
	}
	stored := client.AfterStart
	for e, err := range c.Events(context.Background(), client.EventsOptions{After: stored, Final: true}) {
		switch {
		case errors.Is(err, client.ErrCursorExpired):
			panic("stopped for longer than events are kept") // look up what was missed
		case err != nil:
			panic(err)
		}
		fmt.Println(e.NotificationID, e.Status)
		stored = e.Cursor
		break // a program that follows goes on
	}
	fmt.Println(stored)
	// Output:
	// 0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b sent
	// AQAB
}

func ExampleProblem() {
	server := stand()
	defer server.Close()

	c, err := client.New(server.URL, "dsp_…")
	if err != nil {
		panic(err)
	}
	_, err = c.Get(context.Background(), "0193a1b2-0000-7000-8000-000000000000")
	if p, ok := errors.AsType[*client.Problem](err); ok {
		fmt.Println(p.Status, p.Code)
	}
	// Output: 404 not_found
}

// The notification is sent if and only if the order is stored.
func ExampleEnqueueTx() {
	place := func(ctx context.Context, db *pgx.Conn, order string) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into orders (id) values ($1)", order); err != nil {
				return err
			}
			_, err := client.EnqueueTx(ctx, tx, "shop", client.Notification{
				To:             client.To{Email: &client.EmailAddress{Address: "ana@example.com"}},
				Content:        client.Content{Title: "Thank you", Body: "We have your order."},
				Reference:      order,
				IdempotencyKey: "confirmation-" + order,
			})
			return err
		})
	}
	_ = place
}
