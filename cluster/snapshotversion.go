package cluster

import "cmp"

// SnapshotVersion orders the snapshots of one partition. The zero SnapshotVersion is that of none.
type SnapshotVersion struct {
	Term     uint64 // that of the counters
	Sequence uint64 // of the last change in them
}

// Compare returns whether s is older than t, -1, or newer, 1.
func (s SnapshotVersion) Compare(t SnapshotVersion) int {
	return cmp.Or(cmp.Compare(s.Term, t.Term), cmp.Compare(s.Sequence, t.Sequence))
}
