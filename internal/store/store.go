// Package store keeps Dispatcher's state in Postgres. Statements on the hot path
// take many rows at once; who gathers them is package dispatch. Times are given
// by the caller except where the database's clock is the point.
package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notification-dispatcher/dispatcher/internal/panics"
)

// Store is the database. It is safe for concurrent use.
type Store struct {
	pool  *pgxpool.Pool
	queue Queue
	auth  *authCache
	links links
	wary  wariness
	limit time.Duration

	changed func([]SuppressionChange) // nil for nobody
}

// limit is how long the store's own transactions may take. One that takes longer
// hangs on a connection whose other end is gone, which TCP alone would notice
// after a quarter of an hour, with every result of this node behind it.
const limit = 30 * time.Second

// Queue puts envelopes into the job queue inside a transaction and returns one
// job id for each, in order.
type Queue interface {
	Insert(ctx context.Context, tx pgx.Tx, envelopes []Envelope) ([]int64, error)
}

// Options configure [Open]. Zero fields take their defaults.
type Options struct {
	// MaxConnections of the pool; default 16.
	MaxConnections int
	// Name is the application_name, default "dispatcher".
	Name string
	// SuppressionsChanged is told of what this process changed of suppression lists,
	// once that is committed; nil for nobody.
	SuppressionsChanged func([]SuppressionChange)
}

// planning keeps every statement on its indexes, whatever the server's settings are.
// Each reads the few rows that it names, however many others there are; but one that
// was planned while a table was small would rather read all of it, and go on doing
// so while the table grows, so no plan is kept but those of small flushes. A page
// out of order costs what it does on a disk that does not turn. And nothing here is
// worth to be compiled.
var planning = map[string]string{"plan_cache_mode": "force_custom_plan", "random_page_cost": "1.1", "jit": "off"}

// Open connects to a database. It does not wait for it to answer: a service must
// start while its database is away. The caller closes the store.
func Open(ctx context.Context, databaseURL string, o Options) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, errors.New("the database URL cannot be parsed") // the parser's own words may hold the password
	}
	cfg.MaxConns = 16
	if o.MaxConnections > 0 {
		cfg.MaxConns = int32(min(o.MaxConnections, 1000))
	}
	params := cfg.ConnConfig.RuntimeParams
	if params["application_name"] == "" {
		params["application_name"] = "dispatcher"
		if o.Name != "" {
			params["application_name"] = o.Name
		}
	}
	// A process that freezes or is cut off in mid-transaction must not hold locks,
	// those that every record takes among them, for longer than the others wait.
	params["idle_in_transaction_session_timeout"] = "5000"
	// A backend whose process is cut off gives its locks back within half a minute,
	// not when the kernel's own two hours are over. Unix sockets ignore these.
	params["tcp_keepalives_idle"], params["tcp_keepalives_interval"], params["tcp_keepalives_count"] = "10", "5", "3"
	params["tcp_user_timeout"] = "25000"
	// Whoever meets a stranger's row lock gives up; flushes do so sooner.
	params["lock_timeout"] = strconv.FormatInt(otherPatience.Milliseconds(), 10)
	for name, value := range planning {
		if params[name] == "" {
			params[name] = value
		}
	}
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		registerUUID(conn.TypeMap())
		registerArrays(conn.TypeMap())
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	s := New(pool)
	s.changed = o.SuppressionsChanged
	return s, nil
}

// New wraps a pool, which the store then owns.
func New(pool *pgxpool.Pool) *Store {
	return &Store{pool: pool, auth: newAuthCache(), limit: limit}
}

// Pool returns the connections, for River and for tests.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// SetQueue gives the store its job queue. It is called once, before the first
// write: queue and store need each other, and this is where the knot is tied.
func (s *Store) SetQueue(q Queue) { s.queue = q }

// Close closes all connections.
func (s *Store) Close() { s.pool.Close() }

// Ready reports why the database cannot be worked with now, nil if it can.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.pool.Ping(ctx); err != nil {
		return fmt.Errorf("ping database: %w", err)
	}
	return nil
}

// eventsLock is the key of the transaction-level advisory lock under which
// events are written; see the events table.
const eventsLock int64 = 0x6576656e7473 // "events"

// inTx runs do in a transaction on one connection.
func (s *Store) inTx(ctx context.Context, do func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return do(ctx, tx) })
}

// sendAlone runs a batch in a transaction of its own, in one round trip, and returns
// the first error. The pool's own way keeps the connection for good where a reader
// of an answer panics.
func (s *Store) sendAlone(ctx context.Context, b *pgx.Batch) error {
	return s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return conn.SendBatch(ctx, b).Close() })
}

// Class sorts database errors by what can be done about them.
type Class int

// The classes.
const (
	// Other is not the database's answer, or one that no retry mends.
	Other Class = iota
	// BadRow is SQLSTATE class 22 or 23, or a row that has no JSON form: one of
	// the rows cannot be stored.
	BadRow
	// Transient is class 08, 40, 53, 55, 57 or 58, a server that only reads, or a
	// connection that broke or could not be made, whatever the reason: the same
	// statements may work later, and whether they already did is open.
	Transient
	// Blocked: one of the rows would have to wait for a row that another session
	// has locked, and the others could be written without it.
	Blocked
)

// errUnstorable marks a row that cannot be written in the form that is stored.
var errUnstorable = errors.New("cannot be stored")

// Classify returns the class of err.
func Classify(err error) Class {
	var (
		pg      *pgconn.PgError
		connect *pgconn.ConnectError
		scan    pgx.ScanArgError
		running *BatchRunningError
	)
	switch {
	case err == nil, errors.Is(err, ErrNotFound), errors.Is(err, ErrIdempotencyMismatch), errors.Is(err, ErrKeyEnded), errors.Is(err, ErrBatchLost), errors.Is(err, ErrTooManyWebhooks),
		errors.As(err, &running), errors.As(err, &scan), errors.Is(err, panics.ErrCaught):
		return Other
	case errors.Is(err, errUnstorable):
		return BadRow
	case errors.Is(err, errRowLocked):
		return Blocked
	case errors.As(err, &connect): // also a refused password: nothing was tried yet
		return Transient
	case errors.As(err, &pg):
		return classifyState(pg.Code)
	case errors.Is(err, context.Canceled):
		return Other
	}
	return Transient
}

func classifyState(state string) Class {
	switch state {
	case "25006", // the server was demoted and only reads
		"25P03", "25P04": // we were idle in a transaction, or in one for too long
		return Transient
	}
	if len(state) != 5 {
		return Other
	}
	switch state[:2] {
	case "22", "23":
		return BadRow
	case "08", "40", "53", "55", "57", "58":
		return Transient
	}
	return Other
}

// What follows turns a zero value into NULL, and allocates only where it is none.

func null(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	some := t
	return &some
}

func nullText(s string) *string {
	if s == "" {
		return nil
	}
	some := s
	return &some
}

func nullNumber[T int16 | int64](n T) *T {
	if n == 0 {
		return nil
	}
	some := n
	return &some
}

func nullJSON(text []byte) []byte {
	if len(text) == 0 {
		return nil
	}
	return text
}

// zero turns NULL into a zero value.
func zero[T any](p *T) T {
	var z T
	if p == nil {
		return z
	}
	return *p
}
