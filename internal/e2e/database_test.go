//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/localpg"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// postgres is a server of a test's own, that can be stopped and started.
type postgres struct {
	folder  string
	cluster *localpg.Cluster
}

func startPostgres(t *testing.T) *postgres {
	t.Helper()
	p := &postgres{folder: filepath.Join(t.TempDir(), "pg")}
	p.start(t)
	t.Cleanup(func() { _ = p.cluster.Stop() })
	return p
}

func (p *postgres) start(t *testing.T) {
	t.Helper()
	var err error
	p.cluster, err = localpg.Start(t.Context(), localpg.Config{Folder: p.folder})
	if errors.Is(err, localpg.ErrNoPrograms) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// stopFast breaks off transactions and ends connections.
func (p *postgres) stopFast(t *testing.T) {
	t.Helper()
	if err := p.cluster.Stop(); err != nil {
		t.Fatal(err)
	}
}

// stopImmediate is as good as a crash: the next start recovers.
func (p *postgres) stopImmediate(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.folder, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	p.stopFast(t) // waits for the end and frees the folder
}

func TestTheServiceOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	server := startPostgres(t)
	url := server.cluster.URL("postgres")
	if err := store.Migrate(context.WithoutCancel(t.Context()), url); err != nil {
		t.Fatal(err)
	}
	c := newClusterOn(t, url, quick, resending)
	c.slow(t, callTime)
	serving := c.serve(t)
	n := notifications(t, 1200)
	for i, stop := range []func(*testing.T){server.stopFast, server.stopImmediate} {
		l := begin(t, []*node{serving}, i*n/2, (i+1)*n/2, c.message)
		c.midway(t, i*n/2+n/10)
		stop(t)
		if int(l.posted.Load()) == n/2 {
			t.Error("all had been posted before the database was stopped")
		}
		serving.await(t, "/readyz", http.StatusServiceUnavailable)
		if got, err := serving.call(t, http.MethodGet, "/livez", "", nil); err != nil || got.status != http.StatusOK {
			t.Errorf("without its database the process counts as dead: %d, %v", got.status, err)
		}
		if i == 0 { // a short absence is waited out, a long one is told to callers
			eventually(t, 15*time.Second, "posts are refused", func() bool { return l.refused.Load() > 0 })
		}
		server.start(t)
		c.pool.Reset() // its connections are broken, which a query would be the first to notice
		begun := time.Now()
		serving.await(t, "/readyz", http.StatusOK)
		ready := time.Since(begun)
		l.wait(t)
		c.settled(t, (i+1)*n/2)
		t.Logf("ready %.1f s after the database, all sent after %.1f s; %d posts were refused", ready.Seconds(), time.Since(begun).Seconds(), l.refused.Load())
	}

	stories := c.stories(t)
	t.Logf("%s; %d lines of log", outcomes(stories), strings.Count(serving.stderr.String(), "\n"))
	wantNothingLostOrDoubled(t, stories)
}
