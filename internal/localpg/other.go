//go:build !unix

package localpg

import (
	"context"
	"errors"
)

type server struct{ exited chan struct{} }

func (*server) stop() error { return nil }

var errNotUnix = errors.New("a private PostgreSQL needs a Unix system: use the URL of a running server")

func startThrowaway(context.Context, programs, map[string]string) (*Cluster, error) {
	return nil, errNotUnix
}

func startKept(context.Context, []programs, Config) (*Cluster, error) { return nil, errNotUnix }
