package app

import (
	"context"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/links"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// ackLinks makes and reads links with the database's key, which is read when it
// is first needed and then kept: a process starts without its database.
type ackLinks struct {
	store  *store.Store
	base   string
	signer atomic.Pointer[links.Signer]
}

var (
	_ dispatch.Links   = (*ackLinks)(nil)
	_ httpapi.AckLinks = (*ackLinks)(nil)
)

func newAckLinks(s *store.Store, base config.PublicURL) *ackLinks {
	return &ackLinks{store: s, base: string(base)}
}

// sample is a link as long as every other; empty where the service has no address
// to make links to.
func (l *ackLinks) sample() string {
	if l.base == "" {
		return ""
	}
	return links.NewSigner(l.base, nil).Acknowledge(uuid.Nil)
}

func (l *ackLinks) ready(ctx context.Context) (*links.Signer, error) {
	if s := l.signer.Load(); s != nil {
		return s, nil
	}
	key, err := l.store.LinkKey(ctx)
	if err != nil {
		return nil, err
	}
	s := links.NewSigner(l.base, key)
	l.signer.Store(&s)
	return &s, nil
}

// Acknowledge implements [dispatch.Links].
func (l *ackLinks) Acknowledge(ctx context.Context, id uuid.UUID) (string, error) {
	s, err := l.ready(ctx)
	if err != nil {
		return "", err
	}
	return s.Acknowledge(id), nil
}

// Acknowledged implements [httpapi.AckLinks].
func (l *ackLinks) Acknowledged(ctx context.Context, token string) (uuid.UUID, error) {
	s, err := l.ready(ctx)
	if err != nil {
		return uuid.Nil, err
	}
	return s.Acknowledged(token)
}

// ProjectOf implements [httpapi.AckLinks].
func (l *ackLinks) ProjectOf(ctx context.Context, id uuid.UUID) (string, error) {
	return l.store.ProjectOf(ctx, id)
}
