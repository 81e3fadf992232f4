package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// SnapshotVersion orders the snapshots of one partition. The zero SnapshotVersion is that of none.
type SnapshotVersion = replica.Version

// SnapshotCopies are a node's copies, as snapshots on disk have them.
type SnapshotCopies struct {
	node       ownership.Snapshots
	shard      *shard.Shard
	partitions int
}

// Save returns what this node has of p for a snapshot: its version, the counters that outlive a time, appended to buf, and how many they are. ok says whether it has a copy.
func (c SnapshotCopies) Save(p uint32, outlive time.Duration, buf []byte) (s SnapshotVersion, records []byte, counters int, ok bool) {
	return c.node.Save(p, outlive, buf)
}

// Restore lays what a snapshot has of p down as a copy, with the grants that Undelivered has returned. It must be called before Owners.Adopt and Owners.Run, once for each partition.
func (c SnapshotCopies) Restore(p uint32, s SnapshotVersion, records, encoded []byte) error {
	if int(p) >= c.partitions || s.Term == 0 || s.Term > view.MaxRestored {
		return fmt.Errorf("partition %d of term %d is none of %d with a term from 1 to %d", p, s.Term, c.partitions, uint64(view.MaxRestored))
	}
	var grants []shard.Grant
	err := eachGrantBatch(encoded, func(batch []byte) error {
		some, err := parseGrants(batch)
		grants = append(grants, some...)
		return err
	})
	if err != nil {
		return fmt.Errorf("grants of partition %d: %w", p, err)
	}
	c.shard.Reserve(p, len(records))
	return c.node.Restore(p, s, records, grants)
}

// Expect says which lives were members when the snapshot was written that Restore lays down: they may have newer counters, and are waited for.
func (c SnapshotCopies) Expect(members []Life) { c.node.Expect(members) }

// maxExpected is how many members a node waits for at most: those of its view come first.
const maxExpected = 1 << 16

// Members returns the lives that are members as far as this node knows, which Expect takes. As long as copies are not newer than those of the snapshot that
// Restore has laid down, they include the members of that time: if this node is stopped again before these are back, it has to wait for them still.
func (c SnapshotCopies) Members() (lives []Life) {
	if v := c.node.View(); v != nil {
		lives = v.Lives()
	}
	for _, l := range c.node.Expected() {
		if len(lives) < maxExpected && !slices.ContainsFunc(lives, func(m Life) bool { return m.ID == l.ID }) {
			lives = append(lives, l)
		}
	}
	return lives
}

// Restored returns the highest term of the copies that Restore has laid down, 0 if there are none.
func (c SnapshotCopies) Restored() uint64 { return c.node.Restored() }

// Forget takes back what Restore has laid down.
func (c SnapshotCopies) Forget() { c.node.Forget() }

// Undelivered returns, encoded for Restore, the grants of p that the owner is not known to have. It must be called after Owners.Run has returned.
func (c SnapshotCopies) Undelivered(p uint32) []byte {
	return appendGrantBatches(nil, c.node.Undelivered(p))
}
