package ownership

import (
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/shard"
)

// snapshotPart is what a snapshot has of a partition.
type snapshotPart struct {
	version replica.Version
	records []byte
	grants  []shard.Grant
}

func (x *worldNodeRun) saveAll() (all []snapshotPart) {
	for p := range x.parts {
		version, records, _, _ := Snapshots{x.Node}.Save(uint32(p), 0, nil)
		all = append(all, snapshotPart{version, records, Snapshots{x.Node}.Undelivered(uint32(p))})
	}
	return all
}

// startWith runs a life of a node that has a snapshot.
func (w *nodeWorld) startWith(id string, incarnation uint64, parts []snapshotPart) {
	w.t.Helper()
	x := w.newNode(id, incarnation)
	x.restoreAll(parts)
	w.begin(x)
}

func (x *worldNodeRun) restoreAll(parts []snapshotPart) {
	for p, s := range parts {
		if s.version.Term > 0 {
			if err := (Snapshots{x.Node}).Restore(uint32(p), s.version, s.records, s.grants); err != nil {
				x.world.t.Fatal(err)
			}
		}
	}
}
