package app

import (
	"context"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// operator gives the API an operator's hands.
type operator struct {
	*store.Store
	dispatcher *dispatch.Dispatcher
	member     *resilience.Member
}

var _ httpapi.Operations = operator{}

// AllInfos implements [httpapi.Operations].
func (o operator) AllInfos() []channels.Info {
	accounts := o.dispatcher.Registry().Accounts()
	out := make([]channels.Info, len(accounts))
	for i, a := range accounts {
		out[i] = a.Provider.Info()
	}
	return out
}

// Sharing implements [httpapi.Operations].
func (o operator) Sharing(account string) (group string, weight float64) {
	for _, a := range o.dispatcher.Registry().Accounts() {
		if a.Provider.Info().Account == account {
			return a.Group(), a.Weight
		}
	}
	return "", 0
}

// MaxInFlight implements [httpapi.Operations].
func (o operator) MaxInFlight(c notify.Channel) int {
	return o.dispatcher.Registry().Channel(c).MaxInFlight
}

// Operate implements [httpapi.Operations].
func (o operator) Operate(ctx context.Context, scope string, action store.Action, by resilience.Override) error {
	if err := o.Store.Operate(ctx, scope, action, by); err != nil {
		return err
	}
	// Done it is. Should this process not learn of it now, it does like the others.
	_ = o.member.Refresh(ctx, time.Now())
	return nil
}
