// Command enqueue stores an order and has its confirmation sent, in one
// transaction: either both happen or neither.
//
//	DATABASE_URL=postgres://app@localhost/app go run ./examples/enqueue order-1
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/client"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: enqueue ORDER")
	}
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, databaseURL, order string) error {
	db, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = db.Close(ctx) }()
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into orders (id) values ($1)", order); err != nil {
			return fmt.Errorf("store the order: %w", err)
		}
		id, err := client.EnqueueTx(ctx, tx, "shop", client.Notification{
			To:             client.To{Email: &client.EmailAddress{Address: "ana@example.com", Name: "Ana"}},
			Content:        client.Content{Title: "Your order", Body: "We have your order " + order + "."},
			Reference:      order,
			IdempotencyKey: "confirmation-" + order,
		})
		if err != nil {
			return err
		}
		fmt.Println(id)
		return nil
	})
}
