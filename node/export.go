package node

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/cluster/snapshot"
)

// ExportOptions say what to export.
type ExportOptions struct {
	// File is the path of the file to write. It must not exist.
	File string
	// Dirs are the data directories of nodes of one cluster. None of the nodes may run.
	Dirs []string
	// Partial permits that there is nothing of some partitions.
	Partial bool
	// Now is the time at which counters are over or not.
	Now time.Time
}

// export is the export of the counters of one cluster.
type export struct {
	origin  exportOrigin
	params  cluster.Params
	sources []exportSource
	parts   []exportPart // by partition
}

type exportSource struct {
	dir  string
	node string
}

// exportPart is the newest snapshot of a partition.
type exportPart struct {
	version cluster.SnapshotVersion // zero if there is none
	source  int
	grants  []byte // of all nodes: each has its own
}

// ExportCounters writes the newest snapshot of each partition that the nodes of a cluster have into one file. Without an error
// the file is complete; with one there is none.
func ExportCounters(o ExportOptions) (found Counters, err error) {
	if len(o.Dirs) == 0 {
		return found, errors.New("data-dir: there is none to export from")
	}
	x := &export{}
	var unlocks []func()
	defer func() {
		for _, unlock := range unlocks {
			unlock()
		}
	}()
	for i, dir := range o.Dirs {
		if slices.ContainsFunc(o.Dirs[:i], func(earlier string) bool { return filepath.Clean(earlier) == filepath.Clean(dir) }) {
			return found, fmt.Errorf("data directory %s: named twice", dir)
		}
		if _, err := etcd.ReadStored(dir); errors.Is(err, fs.ErrNotExist) {
			return found, fmt.Errorf("data directory %s: no node has run there", dir)
		}
		unlock, err := etcd.LockDir(dir)
		if err != nil {
			return found, err
		}
		unlocks = append(unlocks, unlock)
		if err := x.addSource(dir); err != nil {
			return found, err
		}
		if err := x.choose(len(x.sources) - 1); err != nil {
			return found, err
		}
	}
	missing := 0
	for _, p := range x.parts {
		if p.version == (cluster.SnapshotVersion{}) {
			missing++
		}
	}
	if missing > 0 && !o.Partial {
		return found, fmt.Errorf("%d of %d partitions are in none of the directories: name those of all nodes with --data-dir, or pass --partial", missing, len(x.parts))
	}
	if err := x.writeFile(o.File); err != nil {
		return found, err
	}
	found, err = readCounters(o.File, o.Now)
	if err != nil {
		err = errors.Join(err, os.Remove(o.File))
	}
	return found, err
}

// readCounters checks all of a file of exported counters, and says what it has.
func readCounters(path string, now time.Time) (found Counters, err error) {
	c, err := openCounters(path)
	if err != nil {
		return found, err
	}
	defer func() { _ = c.f.Close() }() // it is read only
	if found, err = c.survey(now); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return found, err
}

// addSource reads of which cluster a data directory is, which is locked.
func (x *export) addSource(dir string) error {
	stored, err := etcd.ReadStored(dir)
	switch {
	case err != nil:
		return fmt.Errorf("data directory %s: its cluster-state: %w", dir, err)
	case stored.Known == nil:
		return fmt.Errorf("data directory %s: node %q has never been a member of a cluster", dir, stored.Node)
	}
	params, err := etcd.ParseParams(stored.Known.Params)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", dir, err)
	}
	if len(x.sources) == 0 {
		x.params, x.parts = params, make([]exportPart, params.Ring.Partitions)
		x.origin = exportOrigin{Cluster: stored.Cluster, Params: stored.Known.Params}
	} else if stored.Cluster != x.origin.Cluster || fingerprint(params) != fingerprint(x.params) {
		return fmt.Errorf("data directory %s: node %q is of another cluster than %q of %s: export one cluster at a time",
			dir, stored.Node, x.sources[0].node, x.sources[0].dir)
	}
	x.sources = append(x.sources, exportSource{dir, stored.Node})
	return nil
}

// load reads the snapshot of a source.
func (x *export) load(source int, head func(snapshot.Head), each func(snapshot.Partition) error) error {
	s := x.sources[source]
	err := snapshot.Load(s.dir, func(h snapshot.Head) error {
		if h.Cluster != fingerprint(x.params) || int(h.Partitions) != x.params.Ring.Partitions {
			return errForeign
		}
		head(h)
		return nil
	}, each)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory %s: node %q has left no snapshot of counters", s.dir, s.node)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", snapshot.Path(s.dir), err)
	}
	return nil
}

// choose finds out of which partitions a source has the newest snapshot so far.
func (x *export) choose(source int) error {
	return x.load(source, func(h snapshot.Head) {
		x.origin.Nodes = append(x.origin.Nodes, ExportedNode{ID: x.sources[source].node, Taken: time.Unix(0, h.Time).UTC()})
	}, func(p snapshot.Partition) error {
		part := &x.parts[p.Number]
		part.grants = append(part.grants, p.Grants...)
		if v := (cluster.SnapshotVersion{Term: p.Term, Sequence: p.Sequence}); v.Compare(part.version) > 0 {
			part.version, part.source = v, source
		}
		return nil
	})
}

// writeFile writes the file, which only its owner may read: it has the secret of the cluster.
func (x *export) writeFile(path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	out := bufio.NewWriterSize(f, 1<<18)
	err = x.write(out)
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (x *export) write(out *bufio.Writer) error {
	origin, err := json.Marshal(x.origin)
	if err != nil {
		return err
	}
	origin = append(origin, '\n')
	if _, err := fmt.Fprintf(out, "%s%d %016x\n%s", exportMark, exportVersion, xxhash.Sum64(origin), origin); err != nil {
		return err
	}
	w, err := snapshot.NewWriter(out, snapshot.Head{
		Cluster: fingerprint(x.params), Partitions: uint32(len(x.parts)), Node: x.sources[0].node, Time: x.origin.taken().UnixNano(),
	})
	if err != nil {
		return err
	}
	for source := range x.sources {
		err := x.load(source, func(snapshot.Head) {}, func(p snapshot.Partition) error {
			part := &x.parts[p.Number]
			if part.source != source {
				return nil
			}
			p.Term, p.Sequence, p.Grants = importedVersion.Term, importedVersion.Sequence, part.grants
			return w.Add(p)
		})
		if err != nil {
			return err
		}
	}
	return w.Finish()
}
