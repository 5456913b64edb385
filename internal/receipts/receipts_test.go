package receipts_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/receipts"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// reader is a provider that reads the same from every callback.
type reader struct {
	report channels.Report
	err    error
}

func (r *reader) ReadCallback(context.Context, *channels.Callback) (channels.Report, error) {
	return r.report, r.err
}

// fake is one account, and a store in memory.
type fake struct {
	reader
	receipts []store.Receipt
	consents []store.Consent
	err      error // of the store
	log      bytes.Buffer
	now      time.Time
}

func (f *fake) Account(name string) (receipts.Account, bool) {
	switch name {
	case "main":
		return receipts.Account{Channel: notify.Email, Reader: &f.reader, Projects: []string{"p"}}, true
	case "mute":
		return receipts.Account{Channel: notify.Slack}, true
	}
	return receipts.Account{}, false
}

func (f *fake) AddReceipts(_ context.Context, list []store.Receipt) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	f.receipts = append(f.receipts, list...)
	return len(list), nil
}

func (f *fake) AddConsents(_ context.Context, list []store.Consent) error {
	if f.err != nil {
		return f.err
	}
	f.consents = append(f.consents, list...)
	return nil
}

func (f *fake) service() *receipts.Service {
	f.now = noon
	return receipts.New(receipts.Config{
		Accounts: f, Store: f, Log: slog.New(slog.NewTextHandler(&f.log, nil)), Now: func() time.Time { return f.now },
	})
}

func TestWhatACallbackSaysIsKeptBeforeItIsAnswered(t *testing.T) {
	id, attempt := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	ref := channels.Ref{Notification: id, Step: 2, Target: 700, Attempt: attempt}
	whose := store.DeliveryID{Notification: id, Step: 2, Target: 700}
	ana := notify.Target{Email: &notify.EmailAddress{Address: "ana@example.com"}}
	f := &fake{reader: reader{report: channels.Report{
		Receipts: []channels.Receipt{
			{Ref: ref, Status: notify.Delivered, At: noon.Add(-time.Minute)},
			{MessageID: "SM1", Status: notify.Failed, Code: "bad\x00code", Suppress: true, SuppressFor: time.Hour, At: noon.AddDate(100000, 0, 0)},
			{Status: notify.Delivered},                  // of nothing
			{MessageID: "SM1", Status: notify.Canceled}, // tells nothing
			{MessageID: "SM1"},
		},
		Consents: []channels.Consent{
			{Target: ana, Stop: true, Reason: "complaint"},
			{Ref: ref, Stop: true, Reason: "complaint", ID: "f-1", At: noon.Add(-time.Hour)},
			{Target: ana, Reason: "start", At: noon.Add(time.Minute)}, // by a clock that is ahead
		},
		Answer: channels.CallbackAnswer{Status: 200, Body: []byte("ok")},
	}}}
	answer, err := f.service().Receive(t.Context(), "main", &channels.Callback{})
	if err != nil || string(answer.Body) != "ok" {
		t.Fatalf("%+v, %v", answer, err)
	}
	wantReceipts := []store.Receipt{
		{DeliveryID: whose, Attempt: attempt, Account: "main", Status: notify.Delivered, At: noon.Add(-time.Minute), ReceivedAt: noon},
		{
			Account: "main", MessageID: "SM1", Status: notify.Failed, Outcome: notify.RecipientUnavailable, Code: "bad code",
			Suppress: true, SuppressFor: time.Hour, ReceivedAt: noon,
		},
	}
	if diff := cmp.Diff(wantReceipts, f.receipts); diff != "" {
		t.Errorf("receipts (-want +got):\n%s", diff)
	}
	wantConsents := []store.Consent{
		{Account: "main", Projects: []string{"p"}, Channel: notify.Email, Address: ana.Hash(notify.Email), Stop: true, Reason: "complaint", At: noon},
		{
			Account: "main", Projects: []string{"p"}, Channel: notify.Email, Delivery: whose, Stop: true, Reason: "complaint",
			Word: hashOf("f-1"), SaidAt: noon.Add(-time.Hour), At: noon,
		},
		{
			Account: "main", Projects: []string{"p"}, Channel: notify.Email, Address: ana.Hash(notify.Email), Reason: "start",
			Word: hashOf("start@" + noon.Add(time.Minute).Format(time.RFC3339Nano)), SaidAt: noon, At: noon,
		},
	}
	if diff := cmp.Diff(wantConsents, f.consents); diff != "" {
		t.Errorf("consents (-want +got):\n%s", diff)
	}
}

// hashOf is what tells a word apart, for which its id is not kept.
func hashOf(id string) [16]byte {
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:16])
}

func TestARefusedCallbackChangesNothing(t *testing.T) {
	const secret = "ana.secret@example.com"
	full := channels.Report{
		Receipts: []channels.Receipt{{MessageID: "SM1", Status: notify.Delivered}},
		Consents: []channels.Consent{{Stop: true}},
		Answer:   channels.CallbackAnswer{Body: []byte("ok")},
	}
	for _, tt := range []struct {
		name, account string
		err           error
		status        int
	}{
		{"an account that is none", "nobody-" + secret, nil, 404},
		{"an account that reads nothing", "mute", nil, 404},
		{"not proven", "main", &channels.CallbackError{Status: 403, Reason: "signature differs"}, 403},
		{"not to be checked now", "main", &channels.CallbackError{Status: 503, Reason: "certificate cannot be fetched"}, 503},
		{"an error of another kind", "main", errors.New("cannot read " + secret), 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{reader: reader{report: full, err: tt.err}}
			answer, err := f.service().Receive(t.Context(), tt.account, &channels.Callback{Body: []byte(secret), URL: secret, Path: secret})
			refused, ok := errors.AsType[*channels.CallbackError](err)
			if !ok || refused.Status != tt.status || answer.Body != nil {
				t.Errorf("%+v, %v", answer, err)
			}
			if len(f.receipts)+len(f.consents) != 0 {
				t.Error("something was kept")
			}
			if log := f.log.String(); !strings.Contains(log, "level=WARN") || strings.Contains(log, secret) {
				t.Errorf("log %q", log)
			}
		})
	}
}

func TestACallbackThatCannotBeKeptIsNotAnswered(t *testing.T) {
	for _, report := range []channels.Report{
		{Receipts: []channels.Receipt{{MessageID: "SM1", Status: notify.Delivered}}},
		{Consents: []channels.Consent{{Stop: true}}},
	} {
		f := &fake{reader: reader{report: report}, err: errors.New("connection refused")}
		s := f.service()
		_, err := s.Receive(t.Context(), "main", &channels.Callback{})
		if _, refused := errors.AsType[*channels.CallbackError](err); err == nil || refused {
			t.Errorf("error %v", err)
		}
		f.err = nil
		if _, err := s.Receive(t.Context(), "main", &channels.Callback{}); err != nil || len(f.receipts)+len(f.consents) != 1 {
			t.Errorf("again: %v, %d kept", err, len(f.receipts)+len(f.consents))
		}
	}
}

func TestTheSameRefusalIsToldOnceInAWhile(t *testing.T) {
	f := &fake{reader: reader{err: &channels.CallbackError{Status: 403, Reason: "signature differs"}}}
	s := f.service()
	receive := func(n int) {
		for range n {
			_, _ = s.Receive(t.Context(), "main", &channels.Callback{})
		}
	}
	receive(1000)
	f.reader.err = &channels.CallbackError{Status: 400, Reason: "not JSON"}
	receive(1)
	if got := strings.Count(f.log.String(), "\n"); got != 2 {
		t.Fatalf("%d lines:\n%s", got, &f.log)
	}
	f.log.Reset()
	f.now = noon.Add(10 * time.Second)
	f.reader.err = &channels.CallbackError{Status: 403, Reason: "signature differs"}
	receive(2)
	if got := f.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "more_since_last=999") {
		t.Errorf("later:\n%s", got)
	}
}
