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
	os.Exit(cli.Run(untilStopped(), cli.Process{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ(), Version: version,
	}))
}

// untilStopped returns a context that ends with the first signal to stop. The
// second one ends the process at once, with the exit code that shells give to one
// that a signal has ended.
func untilStopped() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2) // none is lost, however soon it follows the other
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		if second, ok := (<-signals).(syscall.Signal); ok {
			os.Exit(128 + int(second))
		}
	}()
	return ctx
}
