package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestLiveProgressRedrawsItsOwnLines(t *testing.T) {
	var out bytes.Buffer
	p := &liveProgress{w: &out}
	v := &view{Status: notify.Queued, Steps: []stepView{{Channel: notify.SMS, Status: notify.Queued}}}
	p.show(v, time.Time{})
	if strings.Contains(out.String(), "\x1b[2A") {
		t.Errorf("the first drawing moves up: %q", out.String())
	}
	out.Reset()
	v.Status, v.Steps[0].Status = notify.Sent, notify.Sent
	p.show(v, time.Time{})
	if want := "\x1b[2A\r\x1b[2Ksms       sent\n\r\x1b[2K=         sent\n"; out.String() != want {
		t.Errorf("redrawn as %q, want %q", out.String(), want)
	}
}
