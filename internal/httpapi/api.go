// Package httpapi is the REST API: it authenticates, reads and checks requests,
// and shows what the store knows. It decides nothing about deliveries.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// DefaultMaxBody is the largest request body, in bytes, unless configured.
const DefaultMaxBody = 1 << 20

// Acceptor takes notifications in; its answer is durable.
type Acceptor interface {
	Accept(ctx context.Context, a store.Accept) (store.Accepted, error)
}

// Store is what is read and managed beside accepting.
type Store interface {
	Get(ctx context.Context, project string, id uuid.UUID) (store.Record, error)
	List(ctx context.Context, f store.Filter) ([]store.Record, error)
	Cancel(ctx context.Context, project string, id uuid.UUID, now time.Time) (store.CancelResult, error)
	Acknowledge(ctx context.Context, project string, id uuid.UUID, now time.Time) (store.Acknowledgement, error)
	Failed(ctx context.Context, f store.Failures, limit int) (ids []uuid.UUID, more bool, err error)
	Backlog(ctx context.Context, project string) ([]store.Backlog, error)
	Pauses(ctx context.Context) ([]store.Pause, error)
}

// Keys are the API keys. Authenticate is called for every request and returns
// [store.ErrNotFound] for a secret that opens nothing.
type Keys interface {
	Authenticate(ctx context.Context, secret string) (store.APIKey, error)
	CreateKey(ctx context.Context, project, name string, scopes []string, expires time.Time) (secret string, key store.APIKey, err error)
	ListKeys(ctx context.Context, project string) ([]store.APIKey, error)
	RevokeKey(ctx context.Context, project string, id uuid.UUID) error
	LimitKey(ctx context.Context, project string, id uuid.UUID, change map[store.RouteClass]*resilience.Limit) (store.APIKey, error)
	RotateKey(ctx context.Context, project string, id uuid.UUID, overlap time.Duration, expires time.Time) (secret string, made, old store.APIKey, err error)
}

// Accounts are the configured accounts, in the order in which channels use them.
type Accounts interface {
	// Infos returns the accounts that a project may use. The slice is shared and
	// not to be changed; it is asked for with every notification.
	Infos(project string) []channels.Info
	// Health is the state of the same accounts now.
	Health(project string) []AccountHealth
	// Check asks the providers of every step whether they would send it at all.
	Check(n *notify.Notification) []notify.Problem
}

// Check is one condition of readiness. It returns why it does not hold, in words
// that go to the log only.
type Check struct {
	Name string // snake_case, shown to callers
	Do   func(ctx context.Context) error
}

// Config is what the API is made of.
type Config struct {
	Accept   Acceptor
	Store    Store
	Keys     Keys
	Accounts Accounts
	// Operations are what operators see and do.
	Operations Operations
	Retry      Retrier
	Plan       Planner
	Batches    Batches
	// Ready are the conditions of /readyz: the database answers, its schema is
	// current, the worker runs, the process is not draining. A breaker is none.
	Ready []Check
	// Events serves status events; nil answers that there are none now.
	Events *Events
	// Webhooks are the status webhooks; nil answers that there are none now.
	Webhooks Webhooks
	// Suppressions are the addresses that may not be written to; nil answers that
	// there are none now.
	Suppressions Suppressions
	// AckLinks are the links in messages; nil serves none.
	AckLinks AckLinks
	// Receipts take in the callbacks of providers; nil answers that there are none.
	Receipts Receipts
	// PublicURL is the address under which providers reach this service, without a
	// slash at its end; empty to go by the requests.
	PublicURL string
	// Limits is what callers may ask for; nil for no limit.
	Limits *RateLimits
	// Metrics serves /metrics; nil for none.
	Metrics http.Handler
	Log     *slog.Logger // nil discards
	// Guard is what panics are told to; nil for one that writes to Log.
	Guard *panics.Guard
	// Observe is told of every request when it is over, for metrics; route is the
	// pattern that matched, empty for none. Nil for none.
	Observe func(route, method string, status int, took time.Duration)
	// MaxBody bounds request bodies, in bytes; 0 means [DefaultMaxBody].
	MaxBody int64
	// MaxBatchBody bounds those of JSON batches; 0 means [DefaultMaxBatchBody].
	MaxBatchBody int64
	// KeepKeys is how long the Idempotency-Key of a batch answers; 0 means 24 h.
	KeepKeys time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// API serves HTTP. It is made by [New] and safe for concurrent use.
type API struct {
	accept       Acceptor
	store        Store
	keys         Keys
	accounts     Accounts
	operations   Operations
	retry        Retrier
	plan         Planner
	batches      Batches
	ready        []Check
	log          *slog.Logger
	guard        *panics.Guard
	maxBody      int64
	maxBatchBody int64
	keepKeys     time.Duration
	now          func() time.Time
	unready      atomic.Bool // what /readyz last said
	events       *streams
	webhooks     Webhooks
	suppressions Suppressions
	receipts     Receipts
	publicBase   string
	callbacks    chan struct{} // one for each callback under way
	limits       *limits
	ackLinks     AckLinks
	observe      func(route, method string, status int, took time.Duration)

	huma huma.API
	mux  *http.ServeMux
}

// New returns the API with all its routes.
func New(c Config) *API {
	a := &API{
		accept: c.Accept, store: c.Store, keys: c.Keys, accounts: c.Accounts, operations: c.Operations, ready: c.Ready,
		retry: c.Retry, plan: c.Plan, batches: c.Batches, maxBatchBody: c.MaxBatchBody, keepKeys: c.KeepKeys,
		log: c.Log, maxBody: c.MaxBody, observe: c.Observe, events: newStreams(c.Events), webhooks: c.Webhooks, ackLinks: c.AckLinks, limits: newLimits(c.Limits), mux: http.NewServeMux(),
	}
	a.suppressions = c.Suppressions
	a.receipts, a.publicBase, a.callbacks = c.Receipts, c.PublicURL, make(chan struct{}, callbacksAtOnce)
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.guard = c.Guard; a.guard == nil {
		a.guard = panics.New(a.log, nil)
	}
	if a.maxBody <= 0 {
		a.maxBody = DefaultMaxBody
	}
	if a.maxBatchBody <= 0 {
		a.maxBatchBody = DefaultMaxBatchBody
	}
	if a.keepKeys <= 0 {
		a.keepKeys = 24 * time.Hour
	}
	clock := c.Now
	if clock == nil {
		clock = time.Now
	}
	a.now = func() time.Time { return clock().Truncate(time.Microsecond) } // which is what Postgres keeps
	setUpHuma()
	a.huma = humago.New(a.mux, humaConfig())
	a.huma.UseMiddleware(a.acceptable, a.authenticate, a.queryKnown)
	a.routeNotifications()
	a.routeBatch()
	a.routeAgain()
	a.routeEvents()
	a.routeChannels()
	a.routeOperate()
	a.routeHistory()
	a.routeKeys()
	a.routeRotation()
	a.routeKeyLimits()
	a.routeWebhooks()
	a.routeWebhookCalls()
	a.routeSuppressions()
	a.routeReceipts()
	a.routeAckLinks()
	a.routeHealth()
	closeRequests(a.huma.OpenAPI())
	documentLimits(a.huma.OpenAPI())
	if c.Metrics != nil {
		a.mux.Handle("GET /metrics", c.Metrics)
	}
	a.mux.HandleFunc("GET /docs", a.docs())
	a.mux.HandleFunc("/", a.unmatched)
	return a
}

// Handle adds a route beside the API's own, with a pattern of [http.ServeMux].
// It must be called before the API serves.
func (a *API) Handle(pattern string, h http.Handler) { a.mux.Handle(pattern, h) }
