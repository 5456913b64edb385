package sandbox_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// TestAdaptersLookUpWhatTheyLostSightOf breaks the connection of a call before
// and after the sandbox took the message, and asks what became of it.
func TestAdaptersLookUpWhatTheyLostSightOf(t *testing.T) {
	s := start(t, sandbox.Config{})
	asked := 0
	for _, p := range adapters(t, s) {
		l, ok := p.(channels.Lookup)
		if !ok {
			continue
		}
		asked++
		info := p.Info()
		for _, drop := range []string{sandbox.DropBefore, sandbox.DropAfter} {
			t.Run(info.Account+" dropped "+drop, func(t *testing.T) {
				s.Forget()
				to := target(s, info.Provider, "+14155550100")
				if info.Provider == "slack" {
					to.Slack.Channel = "C0123ABCDEF"
				}
				m := &channels.Message{
					Key: uuid.New(), NotificationID: uuid.New(), To: to,
					Content: notify.Content{Title: "Deploy failed", Body: "api: 3 of 5 pods are down"}, Priority: notify.Normal,
					CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour),
				}
				setFaults(t, s, sandbox.Rule{Provider: info.Provider, Times: 1, Answer: sandbox.RuleAnswer{Drop: drop}})
				began := time.Now()
				if r := p.Send(t.Context(), m); r.Outcome != notify.Unknown {
					t.Fatalf("outcome %s of a call that was dropped", r.Outcome)
				}
				early := l.LookUp(t.Context(), m, began, time.Now())
				late := l.LookUp(t.Context(), m, began, time.Now().Add(-channels.LookupSettles))
				took := drop == sandbox.DropAfter
				if early.Complete || !late.Complete || (len(early.Messages) == 1) != took || (len(late.Messages) == 1) != took {
					t.Fatalf("sightings %+v and then %+v", early, late)
				}
				if took && late.Messages[0].MessageID != last(t, s).Answer.ID {
					t.Errorf("found %+v", late.Messages[0])
				}
				other := *m
				other.Key, other.Content = uuid.New(), notify.Content{Body: "another text"}
				if o := l.LookUp(t.Context(), &other, began, time.Now().Add(-time.Minute)); !o.Complete || len(o.Messages) != 0 {
					t.Errorf("sighting of another message %+v", o)
				}
			})
		}
	}
	if asked != 3 {
		t.Errorf("%d adapters can look messages up, want those of sms, whatsapp and slack", asked)
	}
}
