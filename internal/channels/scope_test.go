package channels_test

import (
	"regexp"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestRecipientScopeTellsRecipientsApartWithoutNamingThem(t *testing.T) {
	ana, bea := notify.Target{Phone: "+14155550100"}, notify.Target{Phone: "+14155550101"}
	scope := channels.RecipientScope(notify.SMS, ana)
	if !regexp.MustCompile(`^to:[0-9a-f]{16}$`).MatchString(scope) {
		t.Errorf("scope %q is not a hash", scope)
	}
	if again := channels.RecipientScope(notify.SMS, ana); again != scope {
		t.Errorf("scope %q, then %q", scope, again)
	}
	if other := channels.RecipientScope(notify.SMS, bea); other == scope {
		t.Errorf("two recipients share scope %q", other)
	}
	if other := channels.RecipientScope(notify.WhatsApp, ana); other == scope {
		t.Errorf("two channels share scope %q", other)
	}
}
