package telemetry_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

// scrape returns the lines of an answer to a scraper.
func scrape(t *testing.T, m *telemetry.Metrics) []string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: status %d: %s", w.Code, w.Body)
	}
	return strings.Split(w.Body.String(), "\n")
}

func want(t *testing.T, lines []string, series ...string) {
	t.Helper()
	for _, s := range series {
		if !slices.Contains(lines, s) {
			name, _, _ := strings.Cut(s, "{")
			var near []string
			for _, l := range lines {
				if strings.HasPrefix(l, name) && !strings.HasSuffix(l, " 0") {
					near = append(near, l)
				}
			}
			t.Errorf("no line %s; of its kind and not 0: %q", s, near)
		}
	}
}

func count(lines []string, prefix string) int {
	n := 0
	for _, l := range lines {
		if strings.HasPrefix(l, prefix) {
			n++
		}
	}
	return n
}

func TestEverySeriesThatCanBeKnownBeginsAtZero(t *testing.T) {
	m := telemetry.New("v1.2.3")
	m.AddAccount("twilio-main")
	lines := scrape(t, m)
	want(t, lines,
		`dispatcher_notifications_accepted_total{priority="critical"} 0`,
		`dispatcher_notifications_finished_total{outcome="partially_failed"} 0`,
		`dispatcher_delivery_attempts_total{channel="whatsapp",outcome="recipient_rejected"} 0`,
		`dispatcher_delivery_attempt_duration_seconds_count{channel="push"} 0`,
		`dispatcher_time_to_first_delivery_seconds_count{channel="email"} 0`,
		`dispatcher_fallbacks_total{from="push",reason="breaker_open",to="sms"} 0`,
		`dispatcher_breaker_state{account="twilio-main",state="closed"} 1`,
		`dispatcher_breaker_state{account="twilio-main",state="open"} 0`,
		`dispatcher_breaker_transitions_total{account="twilio-main",to="half_open"} 0`,
		`dispatcher_rate_limited_total{class="unauthenticated"} 0`,
		`dispatcher_panics_total{part="background"} 0`,
		`dispatcher_suppressed_deliveries_total{channel="sms",reason="stop"} 0`,
		`dispatcher_panics_total{part="delivery"} 0`,
	)
	for prefix, n := range map[string]int{
		"dispatcher_notifications_accepted_total{": 4,
		"dispatcher_notifications_finished_total{": len(notify.NotificationStatuses()) - 2,
		"dispatcher_delivery_attempts_total{":      len(notify.Channels()) * len(notify.Outcomes()),
		"dispatcher_build_info{":                   1,
		"go_goroutines":                            1,
	} {
		if got := count(lines, prefix); got != n {
			t.Errorf("%d series of %s, want %d", got, prefix, n)
		}
	}
}

func TestEachMethodCountsInItsOwnSeries(t *testing.T) {
	m := telemetry.New("dev")
	m.AddAccount("fcm-main")
	m.Accepted(notify.High, 3)
	m.Finished(notify.Delivered)
	m.Attempt(notify.SMS, notify.Throttled, 200*time.Millisecond)
	m.FirstDelivery(notify.Email, 2*time.Minute)
	m.Fallback(notify.Push, notify.SMS, "recipient_rejected")
	m.Fallback(notify.Push, notify.SMS, "overdue: breaker_open")
	m.Fallback(notify.Push, notify.SMS, "whatever else")
	m.Breaker("fcm-main", telemetry.BreakerOpen)
	m.Limited("write", 3)
	m.Panicked(panics.Request)
	m.Panicked("whatever else")
	m.Suppressed(notify.SMS, "stop")
	m.Suppressed(notify.SMS, "whatever else")
	m.SuppressionChanged("added", "complaint", "twilio-main")
	m.SuppressionChanged("lifted", "whatever else", telemetry.Operator)
	m.Limited("whatever else", 1)
	m.CollectLimits(func() telemetry.Limits { return telemetry.Limits{Local: 1, Exchanges: 3, Failures: 2} })
	m.Request("POST /v1/notifications", "POST", 202, time.Millisecond)
	m.Request("", "BREW", 404, time.Millisecond)
	m.Request("/", "BREW", 404, time.Millisecond)
	want(t, scrape(t, m),
		`dispatcher_notifications_accepted_total{priority="high"} 3`,
		`dispatcher_notifications_finished_total{outcome="delivered"} 1`,
		`dispatcher_delivery_attempts_total{channel="sms",outcome="throttled"} 1`,
		`dispatcher_delivery_attempt_duration_seconds_bucket{channel="sms",le="0.25"} 1`,
		`dispatcher_delivery_attempt_duration_seconds_bucket{channel="sms",le="0.1"} 0`,
		`dispatcher_time_to_first_delivery_seconds_sum{channel="email"} 120`,
		`dispatcher_fallbacks_total{from="push",reason="recipient_rejected",to="sms"} 1`,
		`dispatcher_fallbacks_total{from="push",reason="overdue",to="sms"} 1`,
		`dispatcher_fallbacks_total{from="push",reason="other",to="sms"} 1`,
		`dispatcher_breaker_state{account="fcm-main",state="closed"} 0`,
		`dispatcher_breaker_state{account="fcm-main",state="open"} 1`,
		`dispatcher_breaker_transitions_total{account="fcm-main",to="open"} 1`,
		`dispatcher_rate_limited_total{class="write"} 3`,
		`dispatcher_panics_total{part="request"} 1`,
		`dispatcher_suppressed_deliveries_total{channel="sms",reason="stop"} 1`,
		`dispatcher_suppressed_deliveries_total{channel="sms",reason="other"} 1`,
		`dispatcher_suppression_changes_total{action="added",reason="complaint",source="twilio-main"} 1`,
		`dispatcher_suppression_changes_total{action="lifted",reason="other",source="operator"} 1`,
		`dispatcher_rate_limit_local_total 1`,
		`dispatcher_rate_limit_exchanges_total 3`,
		`dispatcher_rate_limit_exchange_failures_total 2`,
		`dispatcher_http_requests_total{code="202",method="POST",route="POST /v1/notifications"} 1`,
		`dispatcher_http_requests_total{code="404",method="other",route="unmatched"} 2`,
	)
}

func TestNilMetricsCountNothingAndDoNotPanic(t *testing.T) {
	var m *telemetry.Metrics
	m.Accepted(notify.Normal, 1)
	m.Panicked(panics.Delivery)
	m.Suppressed(notify.SMS, "stop")
	m.SuppressionChanged("added", "stop", "a")
	m.Finished(notify.Sent)
	m.Attempt(notify.Push, notify.Accepted, 0)
	m.FirstDelivery(notify.Push, 0)
	m.Fallback(notify.Push, notify.SMS, "unknown")
	m.AddAccount("a")
	m.Breaker("a", telemetry.BreakerOpen)
	m.Request("/", "GET", 200, 0)
	m.Limited("write", 1)
	m.CollectLimits(nil)
	m.CollectQueues(nil)
}

func TestCountingAnAttemptAllocatesNothing(t *testing.T) {
	m := telemetry.New("dev")
	n := testing.AllocsPerRun(100, func() {
		m.Attempt(notify.Webhook, notify.Accepted, time.Millisecond)
		m.FirstDelivery(notify.Webhook, time.Millisecond)
		m.Accepted(notify.Normal, 1)
		m.Fallback(notify.Push, notify.SMS, "overdue: breaker_open")
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestQueueGaugesAreReadWhenScrapedAndKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.New("dev")
		reads, broken := 0, false
		m.CollectQueues(func(ctx context.Context) ([]telemetry.Queue, error) {
			reads++
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("the reading has no deadline")
			}
			if broken {
				return nil, errors.New("database is away")
			}
			return []telemetry.Queue{{
				Channel: notify.SMS, Queued: int64(reads), OldestDue: 3 * time.Second,
				Waiting:    map[notify.WaitReason]int64{notify.WaitThrottled: 7},
				OldestHeld: map[notify.WaitReason]time.Duration{notify.WaitThrottled: 20 * time.Minute},
			}}, nil
		})
		for range 3 {
			want(t, scrape(t, m),
				`dispatcher_queued_deliveries{channel="sms"} 1`,
				`dispatcher_queued_deliveries{channel="push"} 0`,
				`dispatcher_waiting_deliveries{channel="sms",reason="throttled"} 7`,
				`dispatcher_waiting_deliveries{channel="sms",reason="paused"} 0`,
				`dispatcher_oldest_due_seconds{channel="sms"} 3`,
				`dispatcher_held_oldest_seconds{channel="sms",reason="throttled"} 1200`,
				`dispatcher_held_oldest_seconds{channel="push",reason="breaker_open"} 0`)
		}
		<-time.After(6 * time.Second) // of the bubble's clock
		want(t, scrape(t, m), `dispatcher_queued_deliveries{channel="sms"} 2`)

		broken = true
		<-time.After(6 * time.Second)
		lines := scrape(t, m)
		if n := count(lines, "dispatcher_queued_deliveries{"); n != 0 {
			t.Errorf("%d gauges without a reading, want none", n)
		}
		want(t, scrape(t, m), `dispatcher_notifications_accepted_total{priority="low"} 0`)
		if count(lines, "dispatcher_queue_read_failures_total") != 1 {
			t.Error("failed readings are not counted")
		}
	})
}
