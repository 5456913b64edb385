package httpapi_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
)

// Postgres keeps microseconds: an answer that tells more differs from what is shown
// later.
func TestAnAnswerTellsTheInstantThatIsKept(t *testing.T) {
	t.Parallel()
	at := time.Now().UTC().Truncate(time.Second).Add(123_456_789)
	s, db := overPostgres(t, func(c *httpapi.Config) { c.Now = func() time.Time { return at } })
	key := keyFor(t, db, "acme")
	later := `{"to":{"sms":"+14155550100"},"content":{"body":"x"},"send_at":"` + at.Add(time.Hour).Format(time.RFC3339Nano) + `"}`
	var made struct {
		ID string `json:"id"`
	}
	s.do(t, "POST", "/v1/notifications", later, key).want(202).into(&made)
	type instants struct {
		AcknowledgedAt string `json:"acknowledged_at"`
	}
	var told, again, kept instants
	s.do(t, "POST", "/v1/notifications/"+made.ID+"/ack", "", key).want(200).into(&told)
	s.do(t, "POST", "/v1/notifications/"+made.ID+"/ack", "", key).want(200).into(&again)
	s.do(t, "GET", "/v1/notifications/"+made.ID, "", key).want(200).into(&kept)
	if told != kept || again != kept || kept.AcknowledgedAt == "" {
		t.Errorf("acknowledged at %q, says the answer; %q, says the next one; %q is kept", told.AcknowledgedAt, again.AcknowledgedAt, kept.AcknowledgedAt)
	}
}
