package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/cluster/snapshot"
)

// importedVersion is that of all imported counters. Any snapshot that a node of the new cluster writes has a higher one, while terms
// of the old cluster could be above all of them.
var importedVersion = cluster.SnapshotVersion{Term: 1}

// ImportOptions say what to import, and for which node.
type ImportOptions struct {
	// File is the path of a file that ExportCounters has written.
	File string
	// Dir is the data directory of a node that has never run, Cluster the name of the cluster that it is to found, and ID its id.
	Dir, Cluster, ID string
	// Replace permits to replace what was imported before, if no node has used it yet.
	Replace bool
	// DryRun has nothing written.
	DryRun bool
	// Now is the time at which counters are over or not.
	Now time.Time
}

// ImportCounters has the node that is started in a data directory next begin with the counters of a file, as the founder of a
// cluster with the same parameters. All of the file is checked before anything is written.
func ImportCounters(o ImportOptions) (found Counters, err error) {
	if o.ID == "" || o.Dir == "" {
		return found, errors.New("id, data-dir: the node that is to have the counters needs both")
	}
	if err := (Options{ID: o.ID, Cluster: o.Cluster, DataDir: o.Dir}).Validate(); err != nil {
		return found, err
	}
	c, err := openCounters(o.File)
	if err != nil {
		return found, err
	}
	defer func() { _ = c.f.Close() }() // it is read only
	if found, err = c.survey(o.Now); err != nil {
		return found, fmt.Errorf("%s: %w", o.File, err)
	}
	if o.DryRun {
		runs, err := etcd.IsLocked(o.Dir)
		if err == nil && runs {
			err = fmt.Errorf("data directory %s: in use by another process; stop the node that runs there, or name another directory", o.Dir)
		}
		return found, errors.Join(err, o.refuseUsed())
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return found, err
	}
	unlock, err := etcd.LockDir(o.Dir)
	if err != nil {
		return found, err
	}
	defer unlock()
	if err := o.refuseUsed(); err != nil {
		return found, err
	}
	_, err = snapshot.Save(o.Dir, snapshot.Head{
		Cluster: fingerprint(c.params), Partitions: uint32(c.params.Ring.Partitions), Node: o.ID, Time: c.origin.taken().UnixNano(),
	}, func(w *snapshot.Writer) error {
		return c.each(func(p snapshot.Partition) error {
			p.Term, p.Sequence = importedVersion.Term, importedVersion.Sequence
			return w.Add(p)
		})
	})
	if err != nil {
		return found, err
	}
	return found, etcd.WriteFounding(o.Dir, o.Cluster, o.ID, c.params)
}

// refuseUsed refuses a directory in which a node has run, or to which counters were imported.
func (o ImportOptions) refuseUsed() error {
	used := func(what string) error {
		return fmt.Errorf("data directory %s: %s; import into a directory of its own, for a node that has never run", o.Dir, what)
	}
	stored, err := etcd.ReadStored(o.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return used("it has a cluster-state that cannot be read: " + err.Error())
	case stored.Founding == nil:
		return used(fmt.Sprintf("node %q of cluster %q has run there", stored.Node, stored.Cluster))
	}
	if _, err := os.Lstat(filepath.Join(o.Dir, "etcd")); err == nil {
		return used("it has the data of an etcd")
	}
	if _, err := os.Lstat(snapshot.Path(o.Dir)); err == nil && !o.Replace {
		return fmt.Errorf("data directory %s: there is a %s; pass --replace to replace it", o.Dir, snapshot.Name)
	}
	return nil
}
