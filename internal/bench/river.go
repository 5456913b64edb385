package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/notification-dispatcher/dispatcher/internal/bench/sink"
)

// riverJob is a job of raw River: as much as a notification has.
type riverJob struct {
	Number  int             `json:"n"`
	URL     string          `json:"url"`
	Payload json.RawMessage `json:"payload"`
}

// Kind implements [river.JobArgs].
func (riverJob) Kind() string { return "bench" }

// riverWorker does nothing, or posts the job's payload.
type riverWorker struct {
	river.WorkerDefaults[riverJob]
	worked atomic.Int64
	client *http.Client // nil for nothing
}

// Work implements [river.Worker].
func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverJob]) error {
	if w.client != nil {
		if err := w.post(ctx, &job.Args); err != nil {
			return err
		}
	}
	w.worked.Add(1)
	return nil
}

func (w *riverWorker) post(ctx context.Context, args *riverJob) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, args.URL, bytes.NewReader(args.Payload))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", uuid.NewSHA1(uuid.Nil, strconv.AppendInt(nil, int64(args.Number), 10)).String())
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(time.Now().Unix(), 10))
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return err
}

// Raw River's settings: the service's own, with as many workers as help it.
const (
	riverCooldown = 5 * time.Millisecond
	riverPoll     = 100 * time.Millisecond
	riverWorkers  = 1000
	riverPosters  = 256
	riverPool     = 16
)

// rawRiver measures River's own rate: jobs that are there when the clock starts,
// worked and completed.
func rawRiver(kind string, post bool) func(context.Context, *bench) (Sample, error) {
	return func(ctx context.Context, b *bench) (_ Sample, err error) {
		d, err := b.newDatabase(ctx, kind)
		if err != nil {
			return Sample{}, err
		}
		defer func() { err = errors.Join(err, b.drop(ctx, d)) }()
		w := &riverWorker{}
		workers := riverWorkers
		if post {
			workers = riverPosters
			transport := &http.Transport{MaxIdleConns: workers * 2, MaxIdleConnsPerHost: workers, DisableCompression: true}
			defer transport.CloseIdleConnections()
			w.client = &http.Client{Transport: transport, Timeout: 10 * time.Second}
		}
		return b.runRiver(ctx, d, w, workers)
	}
}

func (b *bench) runRiver(ctx context.Context, d *database, w *riverWorker, workers int) (Sample, error) {
	register := river.NewWorkers()
	river.AddWorker(register, w)
	client, err := river.NewClient(riverpgxv5.New(d.pool), &river.Config{
		Logger: slog.New(slog.NewTextHandler(b.o.Log, &slog.HandlerOptions{Level: slog.LevelError})), Workers: register,
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll, ReindexerSchedule: river.NeverSchedule(),
	})
	if err != nil {
		return Sample{}, fmt.Errorf("make river's client: %w", err)
	}
	inserted := time.Now()
	if err := b.insertJobs(ctx, client); err != nil {
		return Sample{}, err
	}
	insertRate := float64(b.o.Count) / time.Since(inserted).Seconds()
	if err := d.settle(ctx); err != nil {
		return Sample{}, err
	}
	if err := b.sink.ask(ctx, order{Do: doReset}, nil); err != nil {
		return Sample{}, err
	}
	m, err := b.begin(ctx, d)
	if err != nil {
		return Sample{}, err
	}
	if err := client.Start(ctx); err != nil {
		return Sample{}, fmt.Errorf("start river: %w", err)
	}
	err = b.awaitJobs(ctx, d, w)
	sample, endErr := m.end(ctx, b.o.Count, time.Now())
	if err := errors.Join(err, endErr, client.Stop(context.WithoutCancel(ctx))); err != nil {
		return Sample{}, err
	}
	sample.More = map[string]float64{"inserted/s before": insertRate}
	return sample, b.verifyPosts(ctx, w)
}

// insertJobs inserts the jobs as fast as River can.
func (b *bench) insertJobs(ctx context.Context, client *river.Client[pgx.Tx]) error {
	const size = 5000
	hosts := b.hosts()
	for from := 0; from < b.o.Count; from += size {
		params := make([]river.InsertManyParams, min(size, b.o.Count-from))
		for i := range params {
			n := from + i
			params[i].Args = riverJob{Number: n, URL: fmt.Sprintf("http://%s/w/%d", hosts[n%len(hosts)], n), Payload: payload(n)}
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return fmt.Errorf("insert jobs: %w", err)
		}
	}
	return nil
}

// awaitJobs returns when all jobs are completed in the database.
func (b *bench) awaitJobs(ctx context.Context, d *database, w *riverWorker) error {
	n := int64(b.o.Count)
	if err := await(ctx, func() (int64, bool, error) {
		worked := w.worked.Load()
		return worked, worked >= n, nil
	}, func() string { return fmt.Sprintf("%d jobs", w.worked.Load()) }); err != nil {
		return err
	}
	var done int64
	return await(ctx, func() (int64, bool, error) {
		err := d.pool.QueryRow(ctx, "select count(*) from river_job where state = 'completed'").Scan(&done)
		return done, done >= n, err
	}, func() string { return fmt.Sprintf("%d jobs", done) })
}

func (b *bench) verifyPosts(ctx context.Context, w *riverWorker) error {
	if w.client == nil {
		return nil
	}
	var received sink.Stats
	if err := b.sink.ask(ctx, order{Do: doStats}, &received); err != nil {
		return err
	}
	if received.Distinct != int64(b.o.Count) {
		return fmt.Errorf("verify: the sink received %d different messages of %d", received.Distinct, b.o.Count)
	}
	return nil
}
