package twilio

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestMessagesThatSayStopOrStart(t *testing.T) {
	stop := func(code string) []channels.Consent {
		return []channels.Consent{{Target: notify.Target{Phone: ana}, Stop: true, Reason: "stop", Code: code, ID: messageSID}}
	}
	start := func(code string) []channels.Consent {
		return []channels.Consent{{Target: notify.Target{Phone: ana}, Reason: "start", Code: code, ID: messageSID}}
	}
	for _, c := range []struct {
		name   string
		fields []string
		want   []channels.Consent
	}{
		{"stop", []string{"Body=STOP"}, stop("STOP")},
		{"in lower case, with space around it", []string{"Body= stop \n"}, stop("STOP")},
		{"all of them", []string{"Body=StopAll"}, stop("STOPALL")},
		{"unsubscribe", []string{"Body=Unsubscribe"}, stop("UNSUBSCRIBE")},
		{"cancel", []string{"Body=cancel"}, stop("CANCEL")},
		{"end", []string{"Body=end"}, stop("END")},
		{"quit", []string{"Body=quit"}, stop("QUIT")},
		{"revoke", []string{"Body=revoke"}, stop("REVOKE")},
		{"optout", []string{"Body=optout"}, stop("OPTOUT")},
		{"start", []string{"Body=start"}, start("START")},
		{"unstop", []string{"Body=UNSTOP"}, start("UNSTOP")},
		{"yes", []string{"Body=Yes"}, start("YES")},
		{"more than the word", []string{"Body=STOP please"}, nil},
		{"a word that has it", []string{"Body=nonstop"}, nil},
		{"help", []string{"Body=HELP"}, nil},
		{"anything else", []string{"Body=" + secretText}, nil},
		{"nothing", []string{"Body="}, nil},
		{"what Twilio took for stop, in another language", []string{"Body=ARRET", "OptOutType=STOP"}, stop("STOP")},
		{"what Twilio took for start", []string{"Body=OUI", "OptOutType=START"}, start("START")},
		{"what Twilio took for help", []string{"Body=AIDE", "OptOutType=HELP"}, nil},
		{"what Twilio took for help, whatever the word", []string{"Body=STOP", "OptOutType=HELP"}, nil},
		{"a type that is to come", []string{"Body=STOP", "OptOutType=PAUSE"}, nil},
		{"from a short code", []string{"From=40404", "Body=STOP"}, nil},
		{"from a name", []string{"From=ACME", "Body=STOP"}, nil},
		{"from something like a number", []string{"From=+1415555010O", "Body=STOP"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := client(t).ReadCallback(notify.SMS, inbound(c.fields...))
			if err != nil {
				t.Fatal(err)
			}
			channeltest.CheckReport(t, report, []string{secretText})
			if diff := cmp.Diff(c.want, report.Consents); diff != "" {
				t.Errorf("consents (-want +got):\n%s", diff)
			}
			if a := report.Answer; a.Status != 200 || a.ContentType != "text/xml; charset=utf-8" || !strings.HasSuffix(string(a.Body), "<Response/>") {
				t.Errorf("answer %+v", a)
			}
		})
	}
}

func TestWhatsAppHasItsOwnConsents(t *testing.T) {
	report, err := client(t).ReadCallback(notify.WhatsApp, inbound("From=whatsapp:"+ana, "To=whatsapp:+14155238886", "Body=Stop"))
	if err != nil || len(report.Consents) != 1 || report.Consents[0].Target.Phone != ana || !report.Consents[0].Stop {
		t.Errorf("report %+v, %v", report, err)
	}
	_, err = client(t).ReadCallback(notify.WhatsApp, inbound("From="+ana, "Body=Stop"))
	wantRefusal(t, err, 400)
}
