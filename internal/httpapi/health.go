package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notification-dispatcher/dispatcher/internal/panics"
)

// readyTimeout is how long the conditions of readiness may take to be found out.
const readyTimeout = 2 * time.Second

type liveOutput struct {
	Body struct {
		Status string `json:"status" enum:"ok"`
	}
}

type readyInput struct {
	Verbose string `query:"verbose" doc:"If it is there, with or without a value, every condition is shown."`
}

// withVerbose looks for the parameter itself: huma shows its value only.
func withVerbose(ctx huma.Context, next func(huma.Context)) {
	u := ctx.URL()
	next(huma.WithValue(ctx, verboseContext, u.Query().Has("verbose")))
}

type readyOutput struct {
	Status int
	Body   readyView
}

type readyView struct {
	Status string            `json:"status" enum:"ready,not_ready"`
	Checks map[string]string `json:"checks,omitempty" doc:"ok or failed by condition: those that failed, with verbose all."`
}

func (a *API) routeHealth() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "live", Method: http.MethodGet, Path: "/livez", Tags: []string{tagHealth}, SkipValidateParams: true,
		Summary: "Is the process alive?", Description: "It asks nobody else, so that a database's fault restarts no process.",
		Errors: []int{406, 422},
	}, func(context.Context, *struct{}) (*liveOutput, error) {
		out := &liveOutput{}
		out.Body.Status = "ok"
		return out, nil
	})
	huma.Register(a.huma, huma.Operation{
		OperationID: "ready", Method: http.MethodGet, Path: "/readyz", Tags: []string{tagHealth}, SkipValidateParams: true,
		Middlewares: huma.Middlewares{withVerbose},
		Summary:     "Can the process take requests?",
		Description: "200 while the database answers with the schema of this version, the worker runs and the process is not " +
			"draining; else 503. A provider that is down, or its breaker, never makes it 503.",
		Errors: []int{406, 422},
		Responses: map[string]*huma.Response{
			"503": {Description: "Not ready", Content: map[string]*huma.MediaType{"application/json": {
				Schema: schemaOf[readyView](a.huma.OpenAPI().Components.Schemas),
			}}},
		},
	}, a.readyNow)
}

func (a *API) readyNow(ctx context.Context, _ *readyInput) (*readyOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	errs := make([]error, len(a.ready))
	var wg sync.WaitGroup
	for i, check := range a.ready {
		wg.Go(func() {
			errs[i] = a.guard.Do(ctx, panics.Request, "check readiness", func() error { return check.Do(ctx) })
		})
	}
	wg.Wait()
	verbose, _ := ctx.Value(verboseContext).(bool)
	out := &readyOutput{Status: http.StatusOK, Body: readyView{Status: "ready", Checks: map[string]string{}}}
	for i, err := range errs {
		name := a.ready[i].Name
		if err != nil {
			out.Status, out.Body.Status, out.Body.Checks[name] = http.StatusServiceUnavailable, "not_ready", "failed"
		} else if verbose {
			out.Body.Checks[name] = "ok"
		}
	}
	a.logReadiness(ctx, errs)
	return out, nil
}

// logReadiness writes a line when readiness changes, not with every probe.
func (a *API) logReadiness(ctx context.Context, errs []error) {
	err := errors.Join(errs...)
	if was := a.unready.Swap(err != nil); was == (err != nil) {
		return
	}
	if err != nil {
		a.log.WarnContext(ctx, "not ready", slog.Any("error", err))
		return
	}
	a.log.InfoContext(ctx, "ready")
}
