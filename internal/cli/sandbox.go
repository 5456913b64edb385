package cli

import (
	"context"
	"flag"
	"fmt"
	"net"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

func sandboxCommand() command {
	return command{
		name: "sandbox", summary: "serve stand-ins for every provider, with faults to switch on",
		details: "`dispatcher config example --sandbox URL --smtp ADDR` prints a configuration that uses it; with its --public-url,\n" +
			"and --service here, the stand-ins report to that service what becomes of messages.",
		setup: func(f *flag.FlagSet) action {
			listen := f.String("listen", "127.0.0.1:8090", "HTTP `address`")
			smtp := f.String("smtp-listen", "127.0.0.1:8025", "SMTP `address`")
			public := f.String("public-url", "", "how others reach the HTTP address, as a `url` (default http:// and it)")
			service := f.String("service", "", "the `url` of a service that is told of bounces, Meta's statuses and what people write")
			return func(ctx context.Context, e *env, _ []string) error {
				s, err := openSandbox(e, sandboxAddresses{*listen, "--listen", *smtp, "--smtp-listen"}, *public)
				if err != nil {
					return err
				}
				if *service != "" {
					reportTo(s, *service)
				}
				defer s.Close() //nolint:errcheck // Run has reported what went wrong
				printTo(e.stdout, "sandbox at %s/sandbox/, SMTP at %s\n", s.HTTPURL(), s.SMTPAddr())
				return s.Run(ctx)
			}
		},
	}
}

// sandboxAddresses are where a sandbox listens, and the flags that say so.
type sandboxAddresses struct{ http, httpFlag, smtp, smtpFlag string }

// openSandbox opens the sandbox's listeners, with one clear sentence where an
// address is taken.
func openSandbox(e *env, at sandboxAddresses, public string) (*sandbox.Server, error) {
	if err := free("sandbox's address", at.http, at.httpFlag); err != nil {
		return nil, err
	}
	if err := free("sandbox's SMTP address", at.smtp, at.smtpFlag); err != nil {
		return nil, err
	}
	return sandbox.New(sandbox.Config{
		HTTPAddr: at.http, SMTPAddr: at.smtp, PublicURL: public,
		Logger: telemetry.NewLogger(e.stderr, nil, "auto"),
	})
}

// free makes sure that an address can be listened on.
func free(what, address, flag string) error {
	l, err := net.Listen("tcp", address) //nolint:noctx // it lets go at once
	if err != nil {
		return fmt.Errorf("the %s %s cannot be listened on: %w; %s chooses another", what, address, cause(err), flag)
	}
	return l.Close()
}
