package sandbox_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

func TestRunServesUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	s, err := sandbox.New(sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	if a := send(t, http.MethodPost, s.HTTPURL()+"/webhook/a", "{}"); a.status != http.StatusOK {
		t.Errorf("answered %d", a.status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if _, err := do(t, http.DefaultClient, http.MethodPost, s.HTTPURL()+"/webhook/a", "{}"); err == nil {
		t.Error("it serves on")
	}
}

func TestASandboxThatNeverStartedLetsItsAddressesGo(t *testing.T) {
	t.Parallel()
	first, err := sandbox.New(sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	again := sandbox.Config{HTTPAddr: first.HTTPURL()[len("http://"):], SMTPAddr: first.SMTPAddr()}
	if _, err := sandbox.New(again); err == nil {
		t.Error("two sandboxes have one address")
	}
	for range 2 {
		if err := first.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	start(t, again)
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]sandbox.Config{
		"a public url without a scheme": {PublicURL: "sandbox:8090"},
		"a webhook that is no url":      {Meta: sandbox.MetaWebhook{URL: "nowhere"}},
		"receipts of fantasy":           {Receipts: &sandbox.Receipts{Final: "perhaps", Repeat: 1}},
		"an address that is none":       {HTTPAddr: "256.0.0.1:1"},
	} {
		if s, err := sandbox.New(cfg); err == nil {
			t.Errorf("%s is taken", name)
			_ = s.Close()
		}
	}
}
