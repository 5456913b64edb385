package email

import (
	"encoding/hex"
	"strings"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

// refHeader names the delivery where a relay on the way puts a Message-ID of its
// own in place of ours, as Amazon SES does.
const refHeader = "X-Dispatcher-Ref"

// deliveryRef is what all attempts of a delivery have in common.
func deliveryRef(m *channels.Message) channels.Ref {
	ref := m.Ref
	ref.Attempt = uuid.Nil
	return ref
}

// messageID is the delivery's own, so that a repeat can be told from a new
// message by the receiver, and a bounce finds the delivery. The key's part is
// another when somebody has the same delivery sent anew, which is not a repeat.
func messageID(m *channels.Message, from mailbox) string {
	local := m.Key.String()
	if ref := deliveryRef(m); !ref.IsZero() {
		local = ref.String() + "." + hex.EncodeToString(m.Key[:4])
	}
	return local + "@" + from.domain
}

// refOf reads the delivery out of a Message-ID of ours, with or without its
// brackets; false where it is none.
func refOf(id string) (channels.Ref, bool) {
	id = strings.TrimSpace(id)
	id = strings.TrimSuffix(strings.TrimPrefix(id, "<"), ">")
	local, _, _ := strings.Cut(id, "@")
	local, _, _ = strings.Cut(local, ".")
	ref, err := channels.ParseRef(local)
	return ref, err == nil
}
