package dispatch

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// mute is a provider that is never called; it will not take bodies named in bad.
type mute struct {
	info channels.Info
	bad  string
}

func (m mute) Info() channels.Info { return m.info }

func (m mute) Send(context.Context, *channels.Message) channels.Result { panic("called") }

func (m mute) Check(message *channels.Message) error {
	if message.Content.Body == m.bad {
		return &channels.CheckError{Field: "/content/body", Reason: "is bad"}
	}
	return nil
}

func muted(account string, c notify.Channel, provider string, projects ...string) *Account {
	return &Account{
		Provider: mute{info: channels.Info{Account: account, Channel: c, Provider: provider, MaxObservable: notify.Sent}, bad: "bad"},
		Timeout:  time.Second, Projects: projects,
	}
}

func registryOf(accounts ...*Account) *Registry {
	by := map[notify.Channel]Channel{}
	for _, a := range accounts {
		c := by[a.Provider.Info().Channel]
		c.Accounts = append(c.Accounts, a)
		by[a.Provider.Info().Channel] = c
	}
	return NewRegistry(by)
}

func TestRegistryPicksTheFirstAccountThatMayServe(t *testing.T) {
	t.Parallel()
	r := registryOf(
		muted("fcm-acme", notify.Push, "fcm", "acme"), muted("fcm-main", notify.Push, "fcm"), muted("apns-main", notify.Push, "apns"),
		muted("twilio-acme", notify.SMS, "twilio", "acme"),
	)
	for _, c := range []struct {
		channel                           notify.Channel
		project, pinned, provider, picked string
	}{
		{notify.Push, "acme", "", "fcm", "fcm-acme"},
		{notify.Push, "other", "", "fcm", "fcm-main"},
		{notify.Push, "acme", "fcm-main", "fcm", "fcm-main"},
		{notify.Push, "other", "fcm-acme", "fcm", ""},
		{notify.Push, "acme", "fcm-main", "apns", ""},
		{notify.Push, "acme", "", "apns", "apns-main"},
		{notify.Push, "acme", "", "webpush", ""},
		{notify.SMS, "acme", "", "", "twilio-acme"},
		{notify.SMS, "other", "", "", ""},
		{notify.SMS, "acme", "fcm-acme", "", ""},
		{notify.Email, "acme", "", "", ""},
	} {
		got := ""
		if a := r.pick(c.channel, c.project, c.pinned, c.provider); a != nil {
			got = a.Provider.Info().Account
		}
		if got != c.picked {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestRegistryShowsAProjectOnlyTheAccountsThatItMayUse(t *testing.T) {
	t.Parallel()
	r := registryOf(muted("fcm-acme", notify.Push, "fcm", "acme"), muted("twilio-main", notify.SMS, "twilio"))
	for project, want := range map[string][]string{"acme": {"fcm-acme", "twilio-main"}, "other": {"twilio-main"}} {
		var got []string
		for _, i := range r.Infos(project) {
			got = append(got, i.Account)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v", project, got)
		}
	}
}

func TestRegistryChecksANotification(t *testing.T) {
	t.Parallel()
	r := registryOf(muted("fcm-main", notify.Push, "fcm"), muted("twilio-acme", notify.SMS, "twilio", "acme"))
	devices := notify.Devices{{Provider: "fcm", Token: "a"}, {Provider: "fcm", Token: "b"}}
	for name, c := range map[string]struct {
		adapt func(n *notify.Notification)
		want  []notify.Problem
	}{
		"well": {func(*notify.Notification) {}, nil},
		"a body that a provider will not take, once for all devices": {
			func(n *notify.Notification) { n.Chain, n.Content.Body = n.Chain[:1], "bad" },
			[]notify.Problem{{Pointer: "/content/body", Code: codeUnsendable, Detail: "is bad"}},
		},
		"a channel without an account for the project": {
			func(n *notify.Notification) { n.Project = "other" },
			[]notify.Problem{noAccount(1, notify.Step{})},
		},
		"a pinned account that there is not": {
			func(n *notify.Notification) { n.Chain[0].Account = "gone" },
			[]notify.Problem{noAccount(0, notify.Step{Account: "gone"})},
		},
		"a device of another provider": {
			func(n *notify.Notification) { n.To.Push[1].Provider = "apns" },
			[]notify.Problem{noAccount(0, notify.Step{})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := notify.Notification{
				ID: uuid.New(), Project: "acme", To: notify.To{Push: slices.Clone(devices), SMS: "+14155550100"},
				Chain: []notify.Step{{Channel: notify.Push}, {Channel: notify.SMS}},
			}
			c.adapt(&n)
			if diff := cmp.Diff(c.want, r.Check(&n)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
