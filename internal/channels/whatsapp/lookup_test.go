package whatsapp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestTwilioLooksTextsUpButNoTemplates(t *testing.T) {
	m := message("")
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if got, want := r.Method+" "+r.URL.Query().Get("To"), "GET whatsapp:"+ana; got != want {
			t.Errorf("call %s, want %s", got, want)
		}
		answer := map[string]any{"messages": []map[string]any{{
			"sid": messageSID, "from": "whatsapp:+14155238886", "body": m.Content.WhatsAppText(), "status": "queued",
			"direction": "outbound-api", "date_created": time.Now().UTC().Format(time.RFC1123Z),
		}}}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	p := newTwilio(t, twilioConfig(srv.URL))
	began := time.Now().Add(-time.Minute)
	if got := p.LookUp(t.Context(), m, began, began); len(got.Messages) != 1 || got.Messages[0].MessageID != messageSID || !got.Complete {
		t.Errorf("sighting of a text %+v", got)
	}
	m.Content.WhatsApp = &notify.WhatsAppContent{Template: &notify.WhatsAppTemplate{Name: templateSID}}
	got := p.LookUp(t.Context(), m, began, began)
	if got.Complete || got.Messages != nil || got.Call.Outcome != notify.NotAttempted || asked != 1 {
		t.Errorf("sighting of a template after %d calls %+v", asked, got)
	}
}
