// Command dispatcher is the notification dispatcher. See dispatcher --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/notification-dispatcher/dispatcher/internal/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	// The heap is small and what a notification costs is garbage soon, so a calmer
	// collector takes some memory and gives back a tenth of the CPU.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	os.Exit(cli.Run(ctx, cli.Process{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ(), Version: version,
	}))
}
