package email

import (
	"strings"
	"testing"

	"github.com/emersion/go-smtp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

// referred is the test message as the dispatcher gives it to a provider.
func referred() *channels.Message {
	m := testMessage()
	m.Ref = myRef
	m.Ref.Attempt = uuid.MustParse("0193e7a2-0000-7000-8000-0000000000bb")
	return m
}

func TestAMessageNamesItsDelivery(t *testing.T) {
	p := offline(t, nil)
	first := parseMessage(t, rendered(t, p, referred())).header
	id := first.Get("Message-Id")
	if ref, ok := refOf(id); !ok || ref != myRef || first.Get(refHeader) != myRef.String() {
		t.Errorf("Message-ID %s, %s %s", id, refHeader, first.Get(refHeader))
	}
	if local, _, _ := strings.Cut(id, "@"); len(local) > 1+maxLocal {
		t.Errorf("a Message-ID of %d characters before the @", len(local)-1)
	}
	second := referred()
	second.Ref.Attempt = uuid.New()
	if again := parseMessage(t, rendered(t, p, second)).header.Get("Message-Id"); again != id {
		t.Errorf("another attempt is %s, and not %s", again, id)
	}
	second.Key[0]++ // the delivery is made anew, and must not be taken for the one before
	anew := parseMessage(t, rendered(t, p, second)).header.Get("Message-Id")
	if ref, ok := refOf(anew); anew == id || !ok || ref != myRef {
		t.Errorf("anew it is %s", anew)
	}
}

func TestOnlyIDsOfOursNameADelivery(t *testing.T) {
	for _, text := range []string{
		"", "<>", "<@>", "<.@x>", "<0193b0c0-0000-5000-8000-000000000001@example.com>", "CAD+=abc@mail.example", myRef.String() + "x",
		strings.ToUpper(myRef.String()) + "@example.com", "<" + myRef.String() + "\n.x@example.com>",
	} {
		if ref, ok := refOf(text); ok {
			t.Errorf("%q names %+v", text, ref)
		}
	}
}

func TestAServerThatReportsIsToldHow(t *testing.T) {
	for _, tt := range []struct {
		name    string
		offered bool
		message *channels.Message
		want    smtp.MailOptions
	}{
		{"offered", true, referred(), smtp.MailOptions{Return: smtp.DSNReturnHeaders, EnvelopeID: myRef.String()}},
		{"not offered", false, referred(), smtp.MailOptions{}},
		{"nothing to name", true, testMessage(), smtp.MailOptions{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			peer := newPeer(t, false, func(s *smtp.Server) { s.EnableDSN = tt.offered })
			send(t, newProvider(t, peer.config(tlsNone)), tt.message)
			if peer.options.Return != tt.want.Return || peer.options.EnvelopeID != tt.want.EnvelopeID {
				t.Errorf("RET=%s ENVID=%s", peer.options.Return, peer.options.EnvelopeID)
			}
		})
	}
}

func TestSESCallsAMessageByItsOwnID(t *testing.T) {
	for answer, want := range map[string]string{
		"250 Ok " + sesMessageID:             sesMessageID,
		"250 2.0.0 Ok " + sesMessageID:       sesMessageID,
		"250 2.0.0 Ok: queued as 4F1D2A0C3B": myID(),
		"250 Ok":                             myID(),
	} {
		s := newServer(t, script{".": answer})
		cfg := s.config()
		if r := send(t, newProvider(t, cfg), referred()); r.MessageID != myID() {
			t.Errorf("%s without a topic: %s", answer, r.MessageID)
		}
		cfg.SNSTopic = topic
		if r := send(t, newProvider(t, cfg), referred()); r.MessageID != want {
			t.Errorf("%s: %s, want %s", answer, r.MessageID, want)
		}
	}
}
