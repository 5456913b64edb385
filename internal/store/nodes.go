package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// When a node counts as dead. Its lock is free as soon as Postgres notices that
// its connection is gone; the heartbeat tells a node that is cut off from one
// that is only reconnecting.
const (
	// deadAfter: no beat for so long and the lock is free.
	deadAfter = 5 * time.Second
	// deadRegardless: no beat for so long, whatever the lock says.
	deadRegardless = 15 * time.Second
	// settleAfterStart: how long after a Postgres start no node is declared dead,
	// since all of them have to reconnect. The same goes for a node that itself
	// had to reconnect: what cut it off may have cut off the others.
	settleAfterStart = 10 * time.Second
)

// links remembers when this process had to link its node again.
type links struct {
	linked atomic.Bool
	again  atomic.Pointer[time.Time]
}

func (l *links) note(now time.Time) {
	if l.linked.Swap(true) {
		l.again.Store(&now)
	}
}

func (l *links) settled(now time.Time) bool {
	again := l.again.Load()
	return again == nil || now.Sub(*again) >= settleAfterStart
}

// NodeLink is the connection on which a node proves that it lives: it holds the
// node's advisory lock and carries the heartbeat.
type NodeLink struct {
	conn *pgx.Conn
	id   uuid.UUID
	name string
	lock int64

	clock time.Time
}

// LinkNode connects and takes the node's lock. The caller closes the link.
func (s *Store) LinkNode(ctx context.Context, id uuid.UUID, name string) (*NodeLink, error) {
	cfg := s.pool.Config().ConnConfig.Copy()
	cfg.RuntimeParams["application_name"] = nodeLinkName
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect node: %w", err)
	}
	l := &NodeLink{conn: conn, id: id, name: name, lock: int64(binary.BigEndian.Uint64(id[8:]))}
	// Not the waiting form: after a cut the old connection may still hold it, and
	// the beat alone keeps the node alive meanwhile.
	if _, err := conn.Exec(ctx, "select pg_try_advisory_lock($1)", l.lock); err != nil {
		return nil, errors.Join(fmt.Errorf("lock node: %w", err), l.Close(context.WithoutCancel(ctx)))
	}
	s.links.note(time.Now())
	return l, nil
}

// nodeLinkName is the application_name of the connections that prove life.
const nodeLinkName = "dispatcher-node"

const beat = `
insert into dispatcher.nodes as n (id, lock_key, name, started_at, beat_at)
values ($1, $2, $3, clock_timestamp(), clock_timestamp())
on conflict (id) do update set beat_at = excluded.beat_at
returning clock_timestamp()`

// Beat writes the heartbeat by the database's clock. A node that had been
// declared dead is registered again: what it had claimed is no longer its own.
func (l *NodeLink) Beat(ctx context.Context) error {
	if _, err := l.conn.Exec(ctx, "select pg_try_advisory_lock($1) where not exists (select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())", l.lock); err != nil {
		return fmt.Errorf("lock node: %w", err)
	}
	if err := l.conn.QueryRow(ctx, beat, l.id, l.lock, l.name).Scan(&l.clock); err != nil {
		return fmt.Errorf("beat: %w", err)
	}
	return nil
}

// Clock is what the database's clock said at the last beat; zero before the first.
func (l *NodeLink) Clock() time.Time { return l.clock }

// Leave removes the node: it holds no claims any more.
func (l *NodeLink) Leave(ctx context.Context) error {
	_, err := l.conn.Exec(ctx, `delete from dispatcher.nodes where id = $1
		and not exists (select from dispatcher.river_job where state = 'running' and `+fetchedBy+`)`, l.id)
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}

// Close ends the connection and with it the lock.
func (l *NodeLink) Close(ctx context.Context) error { return l.conn.Close(ctx) }

const deadNodes = `
select id, lock_key, beat_at < clock_timestamp() - $2::interval
from dispatcher.nodes
where beat_at < clock_timestamp() - $1::interval
  and pg_postmaster_start_time() < clock_timestamp() - $3::interval`

// The lock's two halves stand in pg_locks as unsigned numbers. Another node that
// just tries the lock, to the same end, is no holder to get rid of.
const lockHolders = `
select pg_terminate_backend(l.pid) from pg_locks l join pg_stat_activity a using (pid)
where l.locktype = 'advisory' and l.database = (select oid from pg_database where datname = current_database())
  and l.classid = ($1::int8 >> 32)::bit(32)::int8::oid and l.objid = ($1::int8 & 4294967295)::oid and l.objsubid = 1
  and a.application_name = '` + nodeLinkName + `'`

// DeadNodes returns the nodes whose work must be taken over: none while this
// process has reconnected too lately to judge.
func (s *Store) DeadNodes(ctx context.Context) ([]uuid.UUID, error) {
	if !s.links.settled(time.Now()) {
		return nil, nil
	}
	var dead []uuid.UUID
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, deadNodes, deadAfter, deadRegardless, settleAfterStart)
		if err != nil {
			return err
		}
		type candidate struct {
			id         uuid.UUID
			lock       int64
			regardless bool
		}
		candidates, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c candidate, err error) {
			return c, row.Scan(&c.id, &c.lock, &c.regardless)
		})
		if err != nil {
			return err
		}
		for _, c := range candidates {
			var free bool
			if err := tx.QueryRow(ctx, "select pg_try_advisory_xact_lock($1)", c.lock).Scan(&free); err != nil {
				return err
			}
			if !free && c.regardless {
				if _, err := tx.Exec(ctx, lockHolders, c.lock); err != nil {
					return err
				}
				free = true
			}
			if free {
				dead = append(dead, c.id)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find dead nodes: %w", err)
	}
	return dead, nil
}

const runningJobs = `
select id, args from dispatcher.river_job
where state = 'running' and ` + fetchedBy

// DeadWork returns the deliveries of a dead node's jobs that it had claimed:
// whether their call was made is open.
func (s *Store) DeadWork(ctx context.Context, node uuid.UUID) ([]Delivery, error) {
	items, _, err := deadItems(ctx, s.pool, node)
	if err != nil {
		return nil, fmt.Errorf("read dead node's work: %w", err)
	}
	deliveries, err := readByItems(ctx, s.pool, items, "")
	if err != nil {
		return nil, fmt.Errorf("read dead node's work: %w", err)
	}
	var out []Delivery
	for _, d := range deliveries {
		if d.ClaimedBy == node {
			out = append(out, d)
		}
	}
	return out, nil
}

// Bury puts what a dead node had fetched but not claimed back into the queue, one
// delivery a job, so that no poison shares an envelope again; removes its jobs;
// and forgets the node. Claims must have been settled before (see DeadWork).
func (s *Store) Bury(ctx context.Context, node uuid.UUID) (requeued int, err error) {
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "select from dispatcher.nodes where id = $1 for update skip locked", node)
		if err != nil || tag.RowsAffected() == 0 {
			return err // somebody else does it
		}
		items, jobs, err := deadItems(ctx, tx, node)
		if err != nil {
			return err
		}
		// What somebody else has locked is left to the sweep.
		deliveries, err := readByItems(ctx, tx, items, " for no key update of d skip locked")
		if err != nil {
			return err
		}
		var alone []Delivery
		for _, d := range deliveries {
			if !d.Final && d.ClaimedBy == uuid.Nil && jobs[d.JobID] {
				alone = append(alone, d)
			}
		}
		requeued = len(alone)
		if err := s.requeueAlone(ctx, tx, alone); err != nil {
			return err
		}
		ids := make([]int64, 0, len(jobs))
		for id := range jobs {
			ids = append(ids, id)
		}
		b := &pgx.Batch{}
		b.Queue("delete from dispatcher.river_job where id = any($1) and state = 'running'", ids)
		b.Queue("delete from dispatcher.nodes where id = $1", node)
		return send(ctx, tx, b)
	})
	if err != nil {
		return 0, fmt.Errorf("bury node: %w", err)
	}
	return requeued, nil
}

// requeueAlone gives each delivery a job of its own.
func (s *Store) requeueAlone(ctx context.Context, tx pgx.Tx, deliveries []Delivery) error {
	if len(deliveries) == 0 {
		return nil
	}
	if err := repeatWhereTaken(ctx, tx, deliveries); err != nil {
		return err
	}
	b := &pgx.Batch{}
	envelopes := make([]Envelope, len(deliveries))
	for i := range deliveries {
		d := &deliveries[i]
		envelopes[i] = Envelope{EnvelopeVersion, d.Project, d.Channel, d.Priority, []Item{d.item()}}
	}
	ids, err := s.queue.Insert(ctx, tx, envelopes)
	if err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	for i := range deliveries {
		deliveries[i].JobID = ids[i]
	}
	queueQueued(b, deliveries)
	return send(ctx, tx, b)
}

// deadItems reads the items of a node's running jobs, and the jobs' ids.
func deadItems(ctx context.Context, q queryer, node uuid.UUID) ([]Item, map[int64]bool, error) {
	rows, err := q.Query(ctx, runningJobs, node)
	if err != nil {
		return nil, nil, err
	}
	var items []Item
	jobs := map[int64]bool{}
	var id int64
	var args []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &args}, func() error {
		jobs[id] = true
		var e Envelope
		// A job that is not an envelope of ours has no deliveries to release.
		if json.Unmarshal(args, &e) == nil {
			items = append(items, e.Items...)
		}
		return nil
	})
	return items, jobs, err
}

const readByKeys = `
select ` + deliveryColumnsOfD + `
from unnest($1::uuid[], $2::int2[], $3::int2[], $4::int4[]) as k (id, step, target, turn)
join dispatcher.deliveries d on d.notification_id = k.id and d.step = k.step and d.target = k.target and d.turn = k.turn`

// readByItems reads the deliveries that items name, where the turn still holds,
// under the lock that a clause asks for.
func readByItems(ctx context.Context, q queryer, items []Item, lock string) ([]Delivery, error) {
	if len(items) == 0 {
		return nil, nil
	}
	var k keys
	for _, i := range items {
		k.add(i.Delivery(), i.Turn)
	}
	rows, err := q.Query(ctx, readByKeys+lock, k.ids, k.step, k.target, k.turn)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanDelivery)
}
