package cli

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"time"
)

func healthcheckCommand() command {
	return command{
		name: "healthcheck", summary: "ask a running process whether it is ready",
		details: "For images without a shell. It fails unless the answer is 200 OK.",
		setup: func(f *flag.FlagSet) action {
			file := f.String("config", "", "read this configuration `file` (default $DISPATCHER_CONFIG)")
			url := f.String("url", "", "the `url` to ask (default /readyz at the address of http.listen)")
			timeout := f.Duration("timeout", 3*time.Second, "how long to wait for the answer")
			return func(ctx context.Context, e *env, _ []string) error {
				ask := *url
				if ask == "" {
					c, _ := e.load(*file, nil) // what is wrong elsewhere is not what was asked
					ask = "http://" + dialable(c.HTTP.Listen) + "/readyz"
				}
				ctx, cancel := context.WithTimeout(ctx, *timeout)
				defer cancel()
				return healthcheck(ctx, ask)
			}
		},
	}
}

func healthcheck(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return usagef("--url: %s", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("not reachable: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing of it is read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s answered %s", url, resp.Status)
	}
	return nil
}

// dialable turns an address to listen on into one to connect to: a wildcard
// becomes the loopback.
func dialable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
