package app

import (
	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/receipts"
)

// callbackAccounts are the accounts that are in effect, for the callbacks of
// their providers.
type callbackAccounts struct{ registry func() *dispatch.Registry }

var _ receipts.Accounts = callbackAccounts{}

// Account implements [receipts.Accounts].
func (c callbackAccounts) Account(name string) (receipts.Account, bool) {
	for _, a := range c.registry().Accounts() {
		info := a.Provider.Info()
		if info.Account != name || a.Hidden {
			continue
		}
		reader, _ := a.Provider.(channels.CallbackReader)
		return receipts.Account{Channel: info.Channel, Reader: reader, Projects: a.Projects}, true
	}
	return receipts.Account{}, false
}

// newReceipts takes in callbacks where the API is served.
func (a *App) newReceipts() *receipts.Service {
	return receipts.New(receipts.Config{
		Accounts: callbackAccounts{a.current.Load}, Store: a.store, Metrics: a.metrics, Log: a.log,
	})
}
