package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/app"
	"github.com/notification-dispatcher/dispatcher/internal/bench/sink"
	"github.com/notification-dispatcher/dispatcher/internal/config"
)

func serveSink(s start) (started, func(order) (any, error), func() error, error) {
	k, err := sink.Open(s.Hosts)
	if err != nil {
		return started{}, nil, nil, err
	}
	handle := func(o order) (any, error) {
		switch o.Do {
		case doStats:
			return k.Stats(), nil
		case doCalls:
			return k.Calls(), nil
		case doReset:
			k.Reset(o.Flag)
			return nil, nil
		case doArrivals:
			return k.Arrivals(), nil
		}
		return nil, fmt.Errorf("a sink does not know %q", o.Do)
	}
	return started{Hosts: k.Hosts(), SMTP: k.SMTP()}, handle, k.Close, nil
}

// readyWithin bounds how long a node may take to start.
const readyWithin = 2 * time.Minute

// serveNode runs the service as serve does.
func serveNode(ctx context.Context, s start, log io.Writer, version string) (started, func(order) (any, error), func() error, error) {
	fail := func(err error) (started, func(order) (any, error), func() error, error) {
		return started{}, nil, nil, err
	}
	c, err := config.Parse([]byte(s.Config), nil, map[string]string{"database.url": s.Database, "http.listen": "127.0.0.1:0"})
	if err != nil {
		return fail(err)
	}
	// While it starts, that it is not ready yet is no news.
	level := &slog.LevelVar{}
	level.Set(slog.LevelError)
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level}))
	a, err := app.New(app.Options{Config: c, Mode: app.Mode(s.Mode), Logger: logger, Version: version})
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop := func() error { cancel(); return <-ended }
	if err := awaitReady(ctx, "http://"+a.Addr().String()+"/readyz", ended); err != nil {
		return fail(errors.Join(err, stop()))
	}
	level.Set(slog.LevelWarn)
	handle := func(o order) (any, error) { return nil, fmt.Errorf("a node does not know %q", o.Do) }
	return started{Addr: a.Addr().String()}, handle, stop, nil
}

// awaitReady asks until the answer is yes. ended receives when there will be none.
func awaitReady(ctx context.Context, url string, ended chan error) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-ended:
			ended <- err
			return errors.Join(errors.New("the service ended at once"), err)
		case <-ctx.Done():
			return fmt.Errorf("the service was not ready within %s", readyWithin)
		case <-tick.C:
		}
	}
}
