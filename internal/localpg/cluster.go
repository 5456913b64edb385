package localpg

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"runtime"
	"sync"
)

// Superuser is the role that [Cluster.URL] connects as. It has no password: only
// the operating-system user that owns the socket folder, and root, reach it.
const Superuser = "postgres"

// The errors that [Start] can wrap, beside [ErrNoPrograms].
var (
	// ErrInUse says that another process runs a cluster in the same folder.
	ErrInUse = errors.New("in use by another process")
	// ErrUnusable says that the folder's data cannot be used: broken, another
	// user's, or of a PostgreSQL version that is not installed.
	ErrUnusable = errors.New("data folder cannot be used")
)

// Config says what [Start] starts. Its zero value is a throwaway cluster.
type Config struct {
	// Folder keeps the data between runs, as safe from crashes as PostgreSQL's
	// defaults make it; it is made where it is missing, and holds the server's
	// log, postgres.log. Empty means a throwaway cluster: in memory where there
	// is room, never synced to disk, and removed at the end.
	Folder string
	// Settings are server settings by name, e.g. "log_statement": "all". They
	// win over the package's own.
	Settings map[string]string
}

// Cluster is a running private server.
type Cluster struct {
	sockets string
	server  *server
	// release frees what the cluster holds beside the server: locks, folders.
	release func() error

	stop    sync.Once
	stopErr error
}

// Start starts a cluster and returns when it answers; ctx bounds only the start.
// Started by root, the server runs as the user who owns the data, else as user
// postgres, else as nobody, since PostgreSQL refuses to be root.
//
// A failure is one sentence for a person. It wraps [ErrNoPrograms], [ErrInUse] or
// [ErrUnusable] where it is one of those.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	found := findPrograms(ctx)
	if len(found) == 0 {
		return nil, ErrNoPrograms
	}
	c, err := start(ctx, found, cfg)
	if err != nil {
		return nil, err
	}
	go c.outlive()
	return c, nil
}

func start(ctx context.Context, found []programs, cfg Config) (*Cluster, error) {
	if cfg.Folder == "" {
		return startThrowaway(ctx, found[0], cfg.Settings)
	}
	return startKept(ctx, found, cfg)
}

// outlive keeps the cluster from the garbage collector while its server runs: a
// caller may keep the URL only, and a collected lock or pipe closes itself, which
// tells others that this process is gone.
func (c *Cluster) outlive() {
	<-c.server.exited
	runtime.KeepAlive(c)
}

// URL returns the connection URL of a database, which need not exist. A new
// cluster has the database "postgres".
func (c *Cluster) URL(database string) string {
	u := url.URL{
		Scheme: "postgres",
		Path:   "/" + database,
		RawQuery: url.Values{
			"host": {c.sockets},
			"port": {port}, // Or PGPORT of the environment would win.
			"user": {Superuser},
		}.Encode(),
	}
	return u.String()
}

// Stop ends the server and frees all that the cluster held; a throwaway one
// leaves nothing behind. It takes 20 s at most, ends open connections, and may be
// called again, which returns the first call's error.
func (c *Cluster) Stop() error {
	c.stop.Do(func() { c.stopErr = errors.Join(c.server.stop(), c.release()) })
	return c.stopErr
}

// port only names the socket file, .s.PGSQL.5432.
const port = "5432"

// maxSocketFolder keeps the socket's path within the 104 bytes that a Unix socket
// address has on the BSDs and macOS; Linux has 108.
const maxSocketFolder = 103 - len("/.s.PGSQL."+port)

func socketFits(folder string) bool { return len(filepath.Clean(folder)) <= maxSocketFolder }
