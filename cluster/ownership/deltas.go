package ownership

import (
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// deltas are the grants from copies of one partition, as far as nodes do not have them yet.
type deltas struct {
	own ownDeltas
	// shared are the deltas of other nodes that are over the copy: those of replica.Shared. Records of the owner are merged with them.
	shared []sharedBatch
	safe   replica.Acknowledged // those of other nodes that the standby has
	asked  asked                // notGrantable unless replica.IsGrantable
	heard  uint64               // the term for which the members were asked last, as this node is the owner
}

// grants are those of all deltas: records of the owner are merged with them, as it may not have them.
func (d *deltas) grants() (all []shard.Grant) {
	for _, b := range d.own.batches {
		all = append(all, b.Grants...)
	}
	for _, b := range d.shared {
		all = append(all, b.Grants...)
	}
	return all
}

// ownDeltas are a node's own deltas of one partition.
type ownDeltas struct {
	batches []Batch // from replica.Deltas.First on, or later; len <= maxHeardBatches, and what a snapshot had
	added   uint64  // the last that the owner of the newest view is known to have
	shared  mark    // the last that a node is known to have that does not decide, in its copy
	idle    time.Time
}

// post returns what a node is to have, which has all deltas up to known, and for good if it is the owner all up to added; nil if there are none. If it has all, the
// post is empty. Else it has all after added: what a node has that does not decide may be lost meanwhile, and a node that gets deltas takes them for all up to the
// last. An owner that hears its standbys gets all in any case.
func (d *ownDeltas) post(p uint32, known, added uint64, begins bool) *Post {
	last := len(d.batches) - 1
	if last < 0 {
		return nil
	}
	m := &Post{Partition: p}
	if begins && d.batches[last].Number <= known {
		return m
	}
	for _, b := range d.batches {
		if b.Number > added || !begins {
			m.Batches = append(m.Batches, b)
		}
	}
	return m
}

// sharedBatch is a Batch of another node. There are as many of a node as that may have itself.
type sharedBatch struct {
	from view.Life
	Batch
}

// mark is the last delta that a node is known to have.
type mark struct {
	at   view.Life
	last uint64
}

// of returns the last delta that a node is known to have, 0 for none.
func (m mark) of(l view.Life) uint64 {
	if m.at != l {
		return 0
	}
	return m.last
}

// asked says whether the members were asked for what they have granted, before this node grants from a copy: another standby may have been named while the
// owner was not reached, and have granted.
type asked uint8

const (
	notGrantable asked = iota // the copy is none to grant from
	unasked
	asking
	wasAsked
)
