package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tx is what [EnqueueTx] and [CancelForTx] need of a transaction; a [pgx.Tx] has
// it, and so have a connection and a pool.
type Tx interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SQLSTATEs of a refusal.
const (
	invalidParameter = "22023"
	noPrivilege      = "42501"
)

// EnqueueTx has the service accept a notification of a project when tx commits,
// and forget it when tx rolls back, and returns its id. It calls the SQL function
// dispatcher.enqueue, which holds up nobody else, however long tx stays open.
//
// What can be told without the service's configuration is refused at once, as a
// [*Problem]; like any failed statement that aborts tx. The rest is found by the
// first worker, and the notification then ends failed. The session's role must be
// bound to the project: dispatcher roles bind.
func EnqueueTx(ctx context.Context, tx Tx, project string, n Notification) (id string, err error) {
	body, err := json.Marshal(struct {
		Project string `json:"project"`
		Key     string `json:"idempotency_key,omitempty"`
		Notification
	}{project, n.IdempotencyKey, n})
	if err != nil {
		return "", fmt.Errorf("client: encode the notification: %w", err)
	}
	if err := tx.QueryRow(ctx, "select dispatcher.enqueue($1::text::jsonb)::text", string(body)).Scan(&id); err != nil {
		return "", refusal(err)
	}
	return id, nil
}

// CancelForTx asks that every notification of a project with a reference that has
// not ended is stopped once tx commits, and returns how many there are.
func CancelForTx(ctx context.Context, tx Tx, project, reference string) (int, error) {
	var asked int
	if err := tx.QueryRow(ctx, "select dispatcher.cancel_for($1, $2)", reference, project).Scan(&asked); err != nil {
		return 0, refusal(err)
	}
	return asked, nil
}

// refusal turns the database's word about a notification into a [*Problem].
func refusal(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return fmt.Errorf("client: %w", err)
	}
	switch pg.Code {
	case invalidParameter:
		p := &Problem{Status: http.StatusUnprocessableEntity, Code: "invalid_request", Title: "Unprocessable Entity", Detail: pg.Message, cause: err}
		if pg.Detail == "/idempotency_key" && pg.ConstraintName == "conflict" {
			p.Code = "idempotency_key_mismatch"
		}
		p.Errors = []FieldError{{Pointer: pg.Detail, Code: pg.ConstraintName, Detail: pg.Message}}
		return p
	case noPrivilege:
		return &Problem{Status: http.StatusForbidden, Code: "forbidden", Title: "Forbidden", Detail: pg.Message, cause: err}
	}
	return fmt.Errorf("client: %w", err)
}
