package ownership

import (
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// Changes is one message of a feed: what has changed in a partition since the message before.
type Changes struct {
	Partition uint32
	// Session is the number of the feed. The sender numbers its feeds, in ascending order.
	Session uint64
	// Index is the number of the message in its feed, from 1. The first one begins a copy.
	Index uint64
	// Version and Acknowledged are those of the sender's copy when the message was made.
	Version      replica.Version
	Acknowledged replica.Acknowledged
	// Records are counters, as package shard writes them.
	Records []byte
	// Complete says that the receiver has all of the sender's copy with this message.
	Complete bool
	// Number is that of the sender's view if the copy is fit for a successor: it has all counters, short-lived ones too. Else it is 0.
	Number uint64
	// FinalFor is the term of the owner whose predecessor the sender is: this feed ends with the final state. It is 0 in other feeds.
	FinalFor uint64
	// Base is the version of the copy that the receiver has, if this feed has only what has changed since. Else it is zero.
	Base replica.Version
	// ReadsBase says that the sender keeps the final state as a copy, and takes a feed with that as its Base.
	ReadsBase bool
}

// include has a message that ends a final state say that the sender's own deltas are in it, up to the last one. A former owner has what it grants as the
// standby in its counters. So the next owner knows of that as soon as it decides, and adds none of it twice.
func (m *Changes) include(sender view.Life, last uint64) {
	if had := m.Acknowledged.Of(sender); m.FinalFor > 0 && m.Complete && last > had {
		m.Acknowledged, m.Version.Sequence = m.Acknowledged.With(sender, last), m.Version.Sequence+last-had
	}
}

// Receipt says what has become of a message.
type Receipt uint8

// The receipts.
const (
	Taken   Receipt = iota // it is in the copy, or was before
	Again                  // messages before it are missing: the feed is to begin again
	Later                  // it cannot be taken yet
	Useless                // the receiver has no use for it
	Fit                    // as Taken, and the receiver reports that its copy is complete in the view of that number
)

// Batch is a delta: what a node has granted from its copy, since the delta before.
type Batch struct {
	Number uint64
	Grants []shard.Grant
}

// Post is some of a node's deltas of one partition, by ascending numbers without gaps.
type Post struct {
	Partition uint32
	// Grantor is the incarnation of the node by which they are numbered, 0 for the one that it has now.
	Grantor uint64
	Batches []Batch
}

// Posting is the owner's answer to a Post.
type Posting struct {
	// Refused says that the node does not decide for the partition. The other fields are zero then.
	Refused bool
	// Added is the number of the last delta that is in the owner's counters, Safe that of the last one that is in the standby's copy too.
	Added, Safe uint64
	// Shared says that the node does not decide, but may grant from its copy: they are over that for as long as it may.
	Shared bool
}

// Request asks a node for its copy of a partition: a predecessor for the final state, another node for the best copy that there is.
type Request struct {
	Partition uint32
	Term      uint64 // of the owner that asks
	// Salvages says that the node is no predecessor.
	Salvages bool
}
