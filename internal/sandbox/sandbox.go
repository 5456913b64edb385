package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/emersion/go-smtp"
)

// Server is a running sandbox. Its methods may be called from any goroutine.
type Server struct {
	cfg     Config
	now     func() time.Time
	baseURL string

	httpLn, smtpLn net.Listener
	http           *http.Server
	smtp           *smtp.Server

	messages  *messageLog
	faults    faultList
	receipts  receiptState
	meta      atomic.Pointer[MetaWebhook]
	inbound   atomic.Pointer[TwilioInbound]
	reports   atomic.Pointer[MailReports]
	callbacks *callbackQueue
	scripts   map[string]map[string]Scripted
	refused   *recently // what has been refused once
	tokens    *recently // signed tokens that were found good
	stamps    slackClock
	keys      *keyring

	start, stop sync.Once
	done        chan struct{} // closed by Close: ends delays
	failed      chan error
	wg          sync.WaitGroup
}

// New opens both listeners, so that the addresses are known, but serves nothing
// until [Server.Start]. Close it in any case.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	s := &Server{
		cfg: cfg, now: cfg.Now,
		messages: newMessageLog(cfg.Capacity),
		scripts:  scriptsByProvider(),
		refused:  newRecently(100_000),
		tokens:   newRecently(1_000),
		done:     make(chan struct{}),
		failed:   make(chan error, 2),
	}
	s.receipts.set(*cfg.Receipts)
	s.SetMetaWebhook(cfg.Meta)
	s.SetTwilioInbound(cfg.TwilioInbound)
	s.SetMailReports(cfg.MailReports)
	s.callbacks = newCallbackQueue(cfg.Now)
	keys, err := newKeyring(cfg.STARTTLS)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	s.keys = keys
	if err := s.listen(); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	s.baseURL = publicURL(cfg.PublicURL, s.httpLn.Addr())
	s.http = s.newHTTPServer()
	s.smtp = s.newSMTPServer()
	return s, nil
}

func (s *Server) listen() error {
	var lc net.ListenConfig
	var err error
	if s.httpLn, err = lc.Listen(context.Background(), "tcp", s.cfg.HTTPAddr); err != nil {
		return fmt.Errorf("listen for http: %w", err)
	}
	if s.smtpLn, err = lc.Listen(context.Background(), "tcp", s.cfg.SMTPAddr); err != nil {
		_ = s.httpLn.Close()
		return fmt.Errorf("listen for smtp: %w", err)
	}
	return nil
}

func (s *Server) newHTTPServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           s.routes(),
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1000}, // APNs' own figure
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
}

// Start serves in the background until Close, or until ctx is done.
func (s *Server) Start(ctx context.Context) {
	s.start.Do(func() {
		s.wg.Go(func() { s.serve("http", s.http.Serve(s.httpLn)) })
		s.wg.Go(func() { s.serve("smtp", s.smtp.Serve(s.smtpLn)) })
		s.callbacks.start(ctx)
		s.wg.Go(func() {
			select {
			case <-s.done:
			case <-ctx.Done():
				s.shut()
			}
		})
	})
}

func (s *Server) serve(protocol string, err error) {
	select {
	case <-s.done:
	default:
		if err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("sandbox: serve %s: %w", protocol, err)
		}
	}
}

// Run serves until ctx is done, which is no error, or a listener fails.
func (s *Server) Run(ctx context.Context) error {
	s.Start(ctx)
	var err error
	select {
	case <-s.done:
	case <-ctx.Done():
	case err = <-s.failed:
	}
	return errors.Join(err, s.Close())
}

// Close breaks open connections, ends delays, drops callbacks that are not yet
// due and waits for those under way. It may be called more than once.
func (s *Server) Close() error {
	s.shut()
	s.callbacks.close()
	s.wg.Wait()
	return nil
}

// shut closes listeners and connections and returns at once.
func (s *Server) shut() {
	s.stop.Do(func() {
		close(s.done)
		_ = s.http.Close()
		_ = s.smtp.Close()
		// Listeners that were never served are not the servers' to close.
		_ = s.httpLn.Close()
		_ = s.smtpLn.Close()
	})
}

// HTTPURL is the base URL of every HTTP provider, without a slash at its end.
func (s *Server) HTTPURL() string { return s.baseURL }

// SMTPAddr is host:port of the mail server.
func (s *Server) SMTPAddr() string { return reachable(s.smtpLn.Addr()) }

// pause waits for d, and reports whether it passed before the caller hung up or
// the sandbox closed.
func (s *Server) pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.done:
	}
	return false
}
