package cluster

import "cmp"

// copyVersion orders the copies of a partition.
type copyVersion struct {
	term  Term
	seq   uint64
	whole bool
	// snapshot is that of the snapshot from which the copy is, or zero. Then term is restored, below that of every tenure.
	snapshot SnapshotVersion
}

func (v copyVersion) compare(w copyVersion) int {
	whole := func(v copyVersion) int { return int(boolByte(v.whole)) }
	return cmp.Or(cmp.Compare(whole(v), whole(w)), cmp.Compare(v.term, w.term), v.snapshot.Compare(w.snapshot), cmp.Compare(v.seq, w.seq))
}
