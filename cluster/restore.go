package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A snapshot is what a node had of a partition, kept on its disk. A node that starts lays its snapshots down as
// copies, which count for less than those of any node that has run on: their term is below that of every
// tenure. Of two of them the newer one counts, by its version. So the search for the best copy, before a tenure is
// made again, finds the newest snapshot that any member has, and only if no member has a copy that is whole.

// Bounds of snapshots.
const (
	keepRestored = 10 * time.Minute // of a partition that is no business of this node: members that need it may be late to start
	saveTries    = 3                // at a partition that changes hands meanwhile
)

// restored is the term of all copies from snapshots.
const restored Term = 1

// SnapshotVersion orders the snapshots of one partition. The zero SnapshotVersion is that of none.
type SnapshotVersion struct {
	// Term is that of the counters.
	Term uint64
	// Sequence is how far they go: twice the sequence of the last replica before them, and 1 more by the node that
	// decided.
	Sequence uint64
}

// Compare returns whether s is older than t, -1, or newer, 1.
func (s SnapshotVersion) Compare(t SnapshotVersion) int {
	return cmp.Or(cmp.Compare(s.Term, t.Term), cmp.Compare(s.Sequence, t.Sequence))
}

// isRestored reports whether v is the version of a copy from a snapshot.
func (v copyVersion) isRestored() bool { return v.snapshot != SnapshotVersion{} }

// keep returns how long a copy is kept of a partition that is no business of this node any more.
func (v copyVersion) keep() time.Duration {
	if v.isRestored() {
		return keepRestored
	}
	return keepCopy
}

// Restore lays what a snapshot has of p down as a copy: records of the counters, and encoded grants of which the
// owner was not told. It must be called before Adopt and Run, once for each partition.
func (k *Ownership) Restore(p uint32, s SnapshotVersion, records, grants []byte) error {
	if int(p) >= len(k.parts) || s.Term == 0 {
		return fmt.Errorf("partition %d of term %d is none of %d", p, s.Term, len(k.parts))
	}
	k.Shard.Reserve(p, len(records))
	if err := k.Shard.Apply(p, records); err != nil {
		return err
	}
	err := eachGrantBatch(grants, func(batch []byte) error { return k.inherit(p, batch) })
	if err != nil {
		return fmt.Errorf("grants of partition %d: %w", p, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.parts[p].copy = copyVersion{term: restored, whole: true, snapshot: s}
	return nil
}

// Forget takes back what Restore has laid down.
func (k *Ownership) Forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.parts {
		k.setOutgoing(uint32(p), nil, nil)
		k.Shard.Clear(uint32(p))
		k.parts[p].copy = copyVersion{}
	}
}

// snapshotVersion returns the version of a snapshot of p taken now. ok is false if this node has nothing of p that is worth one.
func (k *Ownership) snapshotVersion(p uint32) (s SnapshotVersion, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pt := &k.parts[p]
	switch v := pt.copy; {
	case pt.pulling: // what is there is not complete
		return s, false
	case pt.tenure.state == active:
		return SnapshotVersion{uint64(pt.tenure.term), pt.sequence<<1 | 1}, true
	case pt.tenure.state == sealed: // its successor begins with this
		return SnapshotVersion{uint64(pt.tenure.term), 0}, true
	case v.whole && v.isRestored():
		return v.snapshot, true
	case v.whole && v.term > restored:
		return SnapshotVersion{uint64(v.term), v.seq<<1 | uint64(boolByte(pt.ended))}, true
	}
	return s, false
}

// Save returns what this node has of p for a snapshot: records of the counters that matter after outlive, and how
// many there are. ok is false if it has nothing, or only a part. Checks are decided meanwhile.
func (k *Ownership) Save(p uint32, outlive time.Duration, buf []byte) (s SnapshotVersion, records []byte, counters int, ok bool) {
	for range saveTries {
		if s, ok = k.snapshotVersion(p); !ok {
			return s, buf, 0, false
		}
		records, counters = k.Shard.Save(p, outlive, buf)
		if after, still := k.snapshotVersion(p); still && after.Term == s.Term { // the sequence may have risen: there is more in it than it says
			return s, records, counters, true
		}
	}
	return s, buf, 0, false
}

// Undelivered returns, encoded for Restore, the grants of p of which the owner was not told. It must be called after Run has
// returned: nothing is granted or delivered any more.
func (k *Ownership) Undelivered(p uint32) (encoded []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	grants := slices.Clone(k.outbox[p].grants)
	for more := k.Shard.TakeGrants(p, maxGrantBatch); len(more) > 0; more = k.Shard.TakeGrants(p, maxGrantBatch) {
		grants = append(grants, more...)
	}
	if k.parts[p].tenure.state == active { // they are among its counters
		return nil
	}
	return appendGrantBatches(encoded, grants)
}
