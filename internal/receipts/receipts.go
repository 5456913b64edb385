// Package receipts takes in what providers report by callback: it finds the
// account, has its provider check and read the callback, and keeps what it says.
// What follows from a receipt is decided elsewhere, once it is kept.
package receipts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

// Account is a configured account as the intake sees it.
type Account struct {
	Channel notify.Channel
	// Reader reads its callbacks; nil where its provider reports nothing.
	Reader channels.CallbackReader
	// Projects may use the account; none means all.
	Projects []string
}

// Accounts are the configured accounts.
type Accounts interface {
	// Account returns the account of a name, and false where there is none.
	Account(name string) (Account, bool)
}

// Store keeps what is reported. When a call returns without an error it is
// durable. Both may be told the same more than once.
type Store interface {
	AddReceipts(ctx context.Context, receipts []store.Receipt) (added int, err error)
	AddConsents(ctx context.Context, consents []store.Consent) error
}

// Config is what a [Service] is made of.
type Config struct {
	Accounts Accounts
	Store    Store
	Metrics  *telemetry.Metrics // nil counts nothing
	Log      *slog.Logger       // nil discards
	Now      func() time.Time   // nil means time.Now
}

// Service takes callbacks in. It is safe for concurrent use.
type Service struct {
	accounts Accounts
	store    Store
	metrics  *telemetry.Metrics
	log      *slog.Logger
	now      func() time.Time
	refusals refusals
}

// New returns a service.
func New(c Config) *Service {
	s := &Service{accounts: c.Accounts, store: c.Store, metrics: c.Metrics, log: c.Log, now: c.Now}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	return s
}

// Path is where callbacks of an account arrive, below the service's public URL;
// what its provider reads follows.
func Path(account string) string { return "/v1/receipts/" + account + "/" }

// Receive checks a callback of an account and keeps what it says. The answer is
// the provider's to have once all of it is durable. The error is a
// [*channels.CallbackError] where nothing of it was used, else the store's; what
// it says may be kept in part then, and the same callback completes it.
func (s *Service) Receive(ctx context.Context, account string, c *channels.Callback) (channels.CallbackAnswer, error) {
	a, ok := s.accounts.Account(account)
	if !ok {
		return s.refuse(ctx, "", &channels.CallbackError{Status: http.StatusNotFound, Reason: "no such account"})
	}
	if a.Reader == nil {
		return s.refuse(ctx, account, &channels.CallbackError{Status: http.StatusNotFound, Reason: "the account's provider reports nothing"})
	}
	report, err := a.Reader.ReadCallback(ctx, c)
	if err != nil {
		return s.refuse(ctx, account, err)
	}
	if err := s.keep(ctx, account, a, report); err != nil {
		s.metrics.Callback(account, telemetry.CallbackFailed)
		return channels.CallbackAnswer{}, fmt.Errorf("keep a callback: %w", err)
	}
	s.metrics.Callback(account, telemetry.CallbackTaken)
	return report.Answer, nil
}

func (s *Service) keep(ctx context.Context, account string, a Account, report channels.Report) error {
	now := s.now()
	if receipts := receiptsOf(account, report.Receipts, now); len(receipts) > 0 {
		if _, err := s.store.AddReceipts(ctx, receipts); err != nil {
			return err
		}
		for i := range receipts {
			s.metrics.Receipt(account, receipts[i].Status)
		}
	}
	if consents := consentsOf(account, a, report.Consents, now); len(consents) > 0 {
		if err := s.store.AddConsents(ctx, consents); err != nil {
			return err
		}
		for i := range consents {
			s.metrics.Consent(account, consents[i].Reason)
		}
	}
	return nil
}

// refuse notes why a callback is not used. account is a configured one or empty:
// a name that somebody made up goes nowhere.
func (s *Service) refuse(ctx context.Context, account string, err error) (channels.CallbackAnswer, error) {
	refused, ok := errors.AsType[*channels.CallbackError](err)
	if !ok { // whose text may hold what was sent
		refused = &channels.CallbackError{Status: http.StatusBadRequest, Reason: "the callback cannot be read"}
	}
	result := telemetry.CallbackRefused
	if refused.Status == http.StatusServiceUnavailable {
		result = telemetry.CallbackFailed
	}
	s.metrics.Callback(account, result)
	if since, ok := s.refusals.tell(account, refused.Reason, s.now()); ok {
		s.log.WarnContext(ctx, "a callback was refused", slog.String("account", account), slog.String("reason", refused.Reason),
			slog.Int("status", refused.Status), slog.Int("more_since_last", since))
	}
	return channels.CallbackAnswer{}, refused
}
