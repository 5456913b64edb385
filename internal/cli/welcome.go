package cli

import (
	"io"
	"os"
	"path/filepath"
)

// welcome is what dev says when everything is ready.
type welcome struct{ program, api, sandbox, smtp, key, keyFile, databaseFile string }

// calledAs is how the person called this program, so that what is printed for them
// to copy works where they are; its name where a test calls it.
func calledAs() string {
	const name = "dispatcher"
	if filepath.Base(os.Args[0]) == name {
		return os.Args[0]
	}
	return name
}

func (w welcome) print(out io.Writer) {
	printTo(out, `
Dispatcher is ready.

  API       %[1]s          (reference: %[1]s/docs)
  Key       %[2]s  (also in %[3]s)
  Sandbox   %[4]s/sandbox/  (what was received, and faults to switch on; SMTP at %[5]s)
  Database  psql "$(cat %[6]s)"

One request for all six channels:

curl -sS %[1]s/v1/notifications \
  -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{
  "mode": "all",
  "to": {"push": {"provider": "fcm", "token": "my-phone"}, "sms": "+14155550100", "whatsapp": "+14155550100",
         "email": "ana@sandbox.test", "slack": {"channel": "#ops"}, "webhook": {"url": "%[4]s/webhook/hello"}},
  "chain": [{"channel": "push"}, {"channel": "sms"}, {"channel": "whatsapp"}, {"channel": "email"},
            {"channel": "slack"}, {"channel": "webhook"}],
  "content": {"title": "Deploy failed", "body": "api: 3 of 5 pods are down"}}'

Or watch one fall back, from a removed app to an SMS:

%[7]s send --url %[1]s --key %[2]s \
  --to-push fcm:unregistered --to-sms +14155550100 --body 'Hello' --watch

Ctrl-C stops everything; the data stays.
`, w.api, w.key, w.keyFile, w.sandbox, w.smtp, w.databaseFile, w.program)
}
