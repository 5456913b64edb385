package app

import (
	"context"
	"time"
)

// TellHeld says in the log what has been held for longer than tooLong.
func (a *App) TellHeld(ctx context.Context, tooLong time.Duration) error {
	return a.tellHeld(ctx, &heldWatch{}, tooLong, time.Now())
}
