package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/snapshot"
	"github.com/weirlimit/weir/shard"
)

// Bounds of the work for a snapshot while the node serves.
const (
	snapshotRate  = 64 << 20              // bytes per second, so that 10,000,000 counters take 5 s
	snapshotPause = 20 * time.Millisecond // the least that is slept; the scheduler cannot do much less
)

// snapshots writes the counters of a node to its data directory, and restores them from there.
type snapshots struct {
	dir      string // empty if there are none
	head     snapshot.Head
	every    time.Duration
	outlive  time.Duration // how much longer than a periodic snapshot a counter must matter
	copies   cluster.SnapshotCopies
	shard    *shard.Shard
	log      *slog.Logger
	failed   atomic.Pointer[string] // why the last one was not written, nil if it was
	bytes    atomic.Int64           // of the last one
	counters atomic.Int64           // of the last one
	written  atomic.Int64           // when the last one was, in Unix nanoseconds
	failures prometheus.Counter
}

// newSnapshots returns the snapshots of a node, which has dir, unless that is empty, to itself.
func (n *node) newSnapshots(params cluster.Params, incarnation uint64) *snapshots {
	s := &snapshots{
		dir: n.opts.DataDir, every: n.opts.SnapshotEvery, outlive: n.opts.SnapshotMinWindow,
		copies: n.owners.SnapshotCopies(), shard: n.shard, log: n.log,
		head: snapshot.Head{
			Cluster: fingerprint(params), Partitions: uint32(params.Ring.Partitions), Node: n.opts.ID, Incarnation: incarnation,
		},
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_snapshot_failures_total", Help: "Snapshots of the counters that could not be written to the data directory.",
		}),
	}
	if n.opts.ForgetCounters {
		s.dir = ""
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	n.metrics.MustRegister(s.failures,
		gauge("weir_snapshot_bytes", "Size of the last snapshot of the counters that this process has written.", func() float64 { return float64(s.bytes.Load()) }),
		gauge("weir_snapshot_counters", "Counters in the last snapshot that this process has written.", func() float64 { return float64(s.counters.Load()) }),
		gauge("weir_snapshot_timestamp_seconds", "When this process has written its last snapshot of the counters, in Unix seconds; 0 before the first.",
			func() float64 { return float64(s.written.Load()) / 1e9 }),
	)
	return s
}

var errForeign = errors.New("it is of another cluster")

// restore lays the counters of an earlier run down as copies. It must be called before Owners runs. A file that
// cannot be used is set aside.
func (s *snapshots) restore() {
	if s.dir == "" {
		return
	}
	var found snapshot.Head
	partitions := 0
	err := snapshot.Load(s.dir, func(h snapshot.Head) error {
		found = h
		switch {
		case h.Cluster != s.head.Cluster:
			return fmt.Errorf("%w: %016x, this one is %016x", errForeign, h.Cluster, s.head.Cluster)
		case h.Partitions != s.head.Partitions:
			return fmt.Errorf("it is of %d partitions, there are %d", h.Partitions, s.head.Partitions)
		}
		return nil
	}, func(p snapshot.Partition) error {
		partitions++
		return s.copies.Restore(p.Number, cluster.SnapshotVersion{Term: p.Term, Sequence: p.Sequence}, p.Records, p.Grants)
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		s.copies.Forget()
		s.setAside(err)
	default:
		s.copies.Expect(livesOf(found.Members))
		s.log.Info("counters restored from a snapshot; they count where no running member has newer ones",
			"file", snapshot.Path(s.dir), "counters", s.shard.Len(), "partitions", partitions, "node", found.Node,
			"age", time.Duration(s.shard.Now()-found.Time).Round(time.Millisecond).String())
	}
}

func livesOf(members []snapshot.Life) (lives []cluster.Life) {
	for _, l := range members {
		lives = append(lives, cluster.Life{ID: l.ID, Incarnation: l.Incarnation})
	}
	return lives
}

// setAside renames a file that cannot be used because of err, and logs what to do about it.
func (s *snapshots) setAside(err error) {
	todo := "remove it; the counters of this node begin at zero unless other members have them"
	switch {
	case errors.Is(err, errForeign):
		todo = "give this node a --data-dir of its own, or remove the file if that cluster does not need it"
	case errors.Is(err, snapshot.ErrTooNew):
		todo = "stop this node, give the file its old name and start the newer version; or remove the file and let counters begin at zero"
	case errors.Is(err, snapshot.ErrTooOld):
		todo = "stop this node, give the file its old name and start a version between the two; or remove the file and let counters begin at zero"
	}
	name, failed := snapshot.SetAside(s.dir)
	if failed != nil {
		s.log.Error("snapshot of the counters not used, and not set aside either", "file", snapshot.Path(s.dir), "error", errors.Join(err, failed), "todo", todo)
		return
	}
	s.log.Error("snapshot of the counters set aside, and not used", "file", snapshot.Path(s.dir), "renamed", name, "error", err, "todo", todo)
}

// Run writes a snapshot over and over until ctx ends.
func (s *snapshots) Run(ctx context.Context) {
	if s.dir == "" {
		return
	}
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.write(ctx, s.outlive, false); ctx.Err() == nil {
			s.note(err)
		}
	}
}

// finish writes all counters, once the node decides nothing any more.
func (s *snapshots) finish() {
	if s.dir == "" {
		return
	}
	began := time.Now()
	err := s.write(context.Background(), 0, true)
	s.note(err)
	if err == nil {
		s.log.Info("counters written", "file", snapshot.Path(s.dir), "counters", s.counters.Load(), "bytes", s.bytes.Load(), "took", time.Since(began).Round(time.Millisecond).String())
	}
}

// write writes the counters that matter after outlive. At the end of the node it does not pause, and adds what
// owners were not told.
func (s *snapshots) write(ctx context.Context, outlive time.Duration, atEnd bool) error {
	began, counters := time.Now(), 0
	s.head.Time, s.head.Members = s.shard.Now(), nil
	for _, l := range s.copies.Members() {
		s.head.Members = append(s.head.Members, snapshot.Life{ID: l.ID, Incarnation: l.Incarnation})
	}
	var buf []byte
	size, err := snapshot.Save(s.dir, s.head, func(w *snapshot.Writer) error {
		for p := range s.head.Partitions {
			v, records, n, ok := s.copies.Save(p, outlive, buf[:0])
			buf = records
			if !ok {
				continue
			}
			counters += n
			part := snapshot.Partition{Number: p, Term: v.Term, Sequence: v.Sequence, Records: records}
			if atEnd {
				part.Grants = s.copies.Undelivered(p)
			}
			if err := w.Add(part); err != nil {
				return err
			}
			due := time.Duration(float64(w.Size()) / snapshotRate * float64(time.Second))
			if ahead := due - time.Since(began); !atEnd && ahead >= snapshotPause {
				if err := sleep(ctx, ahead); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.bytes.Store(size)
	s.counters.Store(int64(counters))
	s.written.Store(s.shard.Now())
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note logs when snapshots begin to fail, and when they are written again.
func (s *snapshots) note(err error) {
	was := s.failed.Load()
	if err == nil {
		s.failed.Store(nil)
		if was != nil {
			s.log.Info("snapshots of the counters are written again", "dir", s.dir)
		}
		return
	}
	s.failures.Inc()
	text := err.Error()
	s.failed.Store(&text)
	if was == nil {
		s.log.Error("the counters cannot be written: if all nodes are restarted, they begin where the last snapshot was", "dir", s.dir, "error", err)
	}
}

// problem is what health says of snapshots, empty if the last one was written.
func (s *snapshots) problem() string {
	if why := s.failed.Load(); why != nil {
		return fmt.Sprintf("the counters cannot be written to %s: %s", s.dir, *why)
	}
	return ""
}
