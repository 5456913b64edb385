package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/app"
)

// backlog measures the steady load beside very many rows and beside a hundredth of
// them, in turns.
func backlog(waiting bool) func(context.Context, *bench) (Sample, error) {
	return func(ctx context.Context, b *bench) (_ Sample, err error) {
		sizes := [2]int{max(b.o.Backlog/100, 10), b.o.Backlog}
		var services [2]*service
		defer func() {
			for _, s := range services {
				if s != nil {
					err = errors.Join(err, s.stop(ctx))
				}
			}
		}()
		took := [2]time.Duration{}
		for i, n := range sizes {
			began := time.Now()
			if services[i], err = b.fill(ctx, waiting, n); err != nil {
				return Sample{}, err
			}
			took[i] = time.Since(began)
		}
		var rates, costs [2][]float64
		for round := range b.o.Rounds {
			for i, s := range services {
				sample, err := s.round(ctx, fmt.Sprintf("%d.%d", sizes[i], round+1))
				if err != nil {
					return Sample{}, err
				}
				rates[i] = append(rates[i], sample.Value)
				costs[i] = append(costs[i], sample.Cost.Service+sample.Cost.Server)
			}
		}
		out := Sample{Value: median(rates[1]) / median(rates[0]), More: map[string]float64{"s to make the rows": took[1].Seconds()}}
		for i, n := range sizes {
			out.More[fmt.Sprintf("/s beside %d", n)] = median(rates[i])
			out.More[fmt.Sprintf("CPU s/1000 of service and PostgreSQL beside %d", n)] = median(costs[i])
		}
		return out, nil
	}
}

// round measures the steady load once, with a node that runs for it alone.
func (s *service) round(ctx context.Context, name string) (Sample, error) {
	defer s.b.profileAs(name)()
	if err := s.addNode(ctx, app.ModeAll); err != nil {
		return Sample{}, err
	}
	err := s.warm(ctx, webhooks)
	var sample Sample
	if err == nil {
		sample, err = s.deliver(ctx, webhooks, s.b.o.Count, steadyWindow)
	}
	return sample, errors.Join(err, s.stopNodes())
}

// fill makes a database with so many notifications that wait for their time, or
// have ended. One is accepted and comes so far by itself, the others are its
// copies.
func (b *bench) fill(ctx context.Context, waiting bool, n int) (_ *service, err error) {
	s, err := b.startService(ctx, app.ModeAll, 1)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop(ctx))
		}
	}()
	mark, err := s.prepare(ctx)
	if err != nil {
		return nil, err
	}
	more := ""
	if waiting {
		more = `,"send_at":"` + time.Now().Add(20*24*time.Hour).UTC().Format(time.RFC3339) + `"`
	}
	message := webhookMessage(fmt.Sprintf("http://%s/w/0", b.hosts()[0]), 0, more)
	if err := s.send(ctx, load{messages: [][]byte{message}, media: jsonType, size: 1}); err != nil {
		return nil, err
	}
	tables := []string{"notifications", "deliveries", "waits", "events"}
	if !waiting {
		if err := s.awaitDone(ctx, webhooks, mark, 1); err != nil {
			return nil, err
		}
		tables[2] = "attempts"
	}
	if err := s.stopNodes(); err != nil {
		return nil, err
	}
	return s, s.copies(ctx, tables, n)
}

// copies multiplies the rows of the one notification that there is.
func (s *service) copies(ctx context.Context, tables []string, n int) error {
	c, err := s.d.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("copy rows: %w", err)
	}
	defer c.Release()
	// A role that may do this makes the rows in half the time: what is copied refers
	// to what is copied. And nothing here has to outlive a crash.
	_, _ = c.Exec(ctx, "set session_replication_role = replica")
	if _, err := c.Exec(ctx, "set synchronous_commit = off"); err != nil {
		return fmt.Errorf("copy rows: %w", err)
	}
	defer func() {
		_, _ = c.Exec(context.WithoutCancel(ctx), "reset session_replication_role; reset synchronous_commit")
	}()
	var statements []string
	for _, table := range tables {
		statement, err := copyStatement(ctx, c.Conn(), table)
		if err != nil {
			return err
		}
		statements = append(statements, statement)
	}
	var original uuid.UUID
	if err := c.QueryRow(ctx, "select id from dispatcher.notifications").Scan(&original); err != nil {
		return fmt.Errorf("copy rows: %w", err)
	}
	if _, err := c.Exec(ctx, "create temp table copied (id uuid)"); err != nil {
		return fmt.Errorf("copy rows: %w", err)
	}
	const part = 20_000
	first := time.Now().Add(-time.Duration(n) * time.Millisecond).UnixMilli()
	for from := 0; from < n; from += part {
		if err := copyPart(ctx, c.Conn(), statements, original, first+int64(from), min(part, n-from)); err != nil {
			return fmt.Errorf("copy rows: %w", err)
		}
	}
	return s.d.settle(ctx)
}

// The ids are of version 7, a millisecond apart, as those of notifications are.
const copiedIDs = `
insert into copied
select (lpad(to_hex($1::bigint + i), 12, '0') || '7' || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid as id
from generate_series(1, $2::int) i`

func copyPart(ctx context.Context, c *pgx.Conn, statements []string, original uuid.UUID, first int64, n int) error {
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "truncate copied"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, copiedIDs, first, n); err != nil {
			return err
		}
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement, original); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyStatement copies a notification's rows of a table, given by its id, for each
// id in copied. It takes the columns from the catalog, so that it need not be kept in
// step with the schema.
func copyStatement(ctx context.Context, c *pgx.Conn, table string) (string, error) {
	rows, err := c.Query(ctx, `select attname from pg_attribute
		where attrelid = ('dispatcher.' || $1::text)::regclass and attnum > 0 and not attisdropped and attidentity = '' and attgenerated = ''
		order by attnum`, table)
	if err != nil {
		return "", fmt.Errorf("read columns: %w", err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", fmt.Errorf("read columns: %w", err)
	}
	key := "notification_id"
	if table == "notifications" {
		key = "id"
	}
	values := make([]string, len(columns))
	for i, column := range columns {
		switch column {
		case key:
			values[i] = "k.id"
		case "id":
			values[i] = "gen_random_uuid()"
		case "address":
			values[i] = "decode(md5(k.id::text), 'hex')"
		default:
			values[i] = "t." + column
		}
	}
	return fmt.Sprintf("insert into dispatcher.%s (%s) select %s from copied k cross join dispatcher.%s t where t.%s = $1 order by k.id",
		table, strings.Join(columns, ", "), strings.Join(values, ", "), table, key), nil
}
