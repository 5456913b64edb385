package cli

import (
	"context"
	"flag"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
)

func openapiCommand() command {
	return command{
		name: "openapi", summary: "print the API's description, OpenAPI 3.1 in YAML",
		setup: func(*flag.FlagSet) action {
			return func(_ context.Context, e *env, _ []string) error {
				text, err := httpapi.OpenAPI()
				if err != nil {
					return err
				}
				_, err = e.stdout.Write(text)
				return err
			}
		},
	}
}
