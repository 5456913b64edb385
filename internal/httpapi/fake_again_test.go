package httpapi_test

import (
	"context"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func (f *fake) Acknowledge(_ context.Context, project string, id uuid.UUID, now time.Time) (store.Acknowledgement, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	if _, ok := f.canceled[id]; !ok || project != "acme" {
		return store.Acknowledgement{}, store.ErrNotFound
	}
	return store.Acknowledgement{Result: store.Acknowledged, At: now, Calling: 1}, f.err
}

func (f *fake) Retry(_ context.Context, project string, id uuid.UUID, expires time.Time) (store.Retry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	if _, ok := f.canceled[id]; !ok || project != "acme" {
		return store.Retry{}, store.ErrNotFound
	}
	if expires.IsZero() {
		expires = noon.Add(time.Hour)
	}
	return store.Retry{Result: store.Retried, Round: 1, ExpiresAt: expires}, f.err
}

func (f *fake) Failed(_ context.Context, filter store.Failures, limit int) ([]uuid.UUID, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures = append(f.failures, filter)
	f.limits = append(f.limits, limit)
	var ids []uuid.UUID
	for id := range f.canceled {
		ids = append(ids, id)
	}
	return ids, len(ids) > 1, f.err
}

func (f *fake) RotateKey(_ context.Context, project string, id uuid.UUID, overlap time.Duration, expires time.Time) (string, store.APIKey, store.APIKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	for _, k := range f.keys {
		if k.ID == id && k.ID != uuid.Nil && k.Project == project {
			old := k
			old.ExpiresAt = noon.Add(overlap)
			k.ExpiresAt = expires
			return "dsp_new", k, old, f.err
		}
	}
	return "", store.APIKey{}, store.APIKey{}, store.ErrNotFound
}

func (f *fake) Plan(n *notify.Notification) []httpapi.PlannedStep {
	out := make([]httpapi.PlannedStep, len(n.Chain))
	for i, s := range n.Chain {
		p := httpapi.PlannedStep{Targets: len(n.To.Targets(s.Channel)), Latest: n.SendAt, Problems: f.problems}
		for _, info := range f.Infos(n.Project) {
			if info.Channel == s.Channel && len(p.Accounts) == 0 {
				p.Accounts = []string{info.Account}
			}
		}
		p.Preview = channels.Preview{Body: n.Content.SMSText(), Segments: 1, Encoding: "GSM-7"}
		out[i] = p
	}
	return out
}

// The fake keeps no batches; tests of repeating them run over Postgres.

func (f *fake) BeginBatch(context.Context, string, string, [32]byte, time.Duration) (store.Batch, error) {
	return store.Batch{}, f.err
}

func (f *fake) BatchPart(context.Context, store.Batch, int) (store.BatchPart, bool, error) {
	return store.BatchPart{}, false, f.err
}

func (f *fake) SaveBatchPart(context.Context, store.Batch, store.BatchPart) error { return f.err }

func (f *fake) LeaveBatch(context.Context, store.Batch, int) error { return f.err }

func (f *fake) LimitKey(_ context.Context, project string, id uuid.UUID, change map[store.RouteClass]*resilience.Limit) (store.APIKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	for secret, k := range f.keys {
		if k.ID != id || k.ID == uuid.Nil || k.Project != project {
			continue
		}
		limits := maps.Clone(k.Limits)
		if limits == nil {
			limits = store.KeyLimits{}
		}
		for class, limit := range change {
			delete(limits, class)
			if limit != nil {
				limits[class] = *limit
			}
		}
		k.Limits = limits
		f.keys[secret] = k
		return k, f.err
	}
	return store.APIKey{}, store.ErrNotFound
}
