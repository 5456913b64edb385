package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestOnlyWhatIsSignedIsBelieved(t *testing.T) {
	t.Parallel()
	var told []happening
	handler, err := receiver(secret, func(h happening) { told = append(told, h) })
	if err != nil {
		t.Fatal(err)
	}
	signer, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	const failed = `{"type":"notification.failed","timestamp":"2026-12-01T08:00:00.41Z","data":{"notification_id":"0193","because":"recipient_rejected"}}`
	call := func(signed, sent string, at time.Time) int {
		signature, err := signer.Sign("msg-1", at, []byte(signed))
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(sent))
		r.Header.Set("webhook-id", "msg-1")
		r.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
		r.Header.Set("webhook-signature", signature)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	for _, test := range []struct {
		name, signed, sent string
		at                 time.Time
		want               int
	}{
		{"signed", failed, failed, time.Now(), http.StatusNoContent},
		{"changed on the way", failed, strings.Replace(failed, "0193", "0194", 1), time.Now(), http.StatusUnauthorized},
		{"recorded", failed, failed, time.Now().Add(-time.Hour), http.StatusUnauthorized},
		{"signed, and no event", "[]", "[]", time.Now(), http.StatusBadRequest},
		{"too long", failed, failed + strings.Repeat(" ", 1<<20), time.Now(), http.StatusBadRequest},
	} {
		if got := call(test.signed, test.sent, test.at); got != test.want {
			t.Errorf("%s: answered %d, want %d", test.name, got, test.want)
		}
	}
	if len(told) != 1 || told[0].Type != "notification.failed" || told[0].Data.NotificationID != "0193" || told[0].Data.Because != "recipient_rejected" {
		t.Errorf("it told of %+v, want the one that was signed", told)
	}
	if _, err := receiver("", nil); err == nil {
		t.Error("it starts without a secret, and would believe anybody")
	}
}
