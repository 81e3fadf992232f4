package cluster

import "github.com/weirlimit/weir/shard"

// Locator knows where the counters are that this node does not have.
type Locator interface {
	// OwnerOf returns the id of the member that is asked for partition p: the view's owner, or a predecessor for whose final state
	// this node waits as the owner. It is this node itself if it owns p, also if it may not decide. ok is false before the first view, and if this
	// node decides from its copy in the place of others.
	OwnerOf(p uint32) (id string, ok bool)
	// Reaching returns the ids of the members that have said lately that they reach the one of that
	// id.
	Reaching(id string) []string
	// IsGrantable reports whether this node may decide from its copy of partition p if the node that is to decide does not answer.
	IsGrantable(p uint32) bool
	// DecidesProvisionally reports whether this node is the owner of p, waits for the final state of a former owner, and reaches none that it
	// waits for: it decides from its copy meanwhile.
	DecidesProvisionally(p uint32) bool
	// ReturnGranted returns the id of the member that is to undo a take which this node has granted as the standby, in a grant that was sent: the one that has
	// the grant, "" as long as none is known to have it.
	ReturnGranted(take shard.Take) string
	// StandIn returns the id of the member that grants from its copy of partition p in the place of its owner, although it is not its standby; "" for none.
	StandIn(p uint32) string
	// Returning returns a channel that is closed when this node may decide again, if it was suspended
	// until just now, or else nil.
	Returning() <-chan struct{}
	// WasStopped reports whether this node has gone on just now after a stop: that others were silent meanwhile says nothing
	// of them.
	WasStopped() bool
}

// Local answers from this node's counters. *shard.Shard is one.
type Local interface {
	Decide(groups []shard.Group)
	Return(takes []shard.Take)
	Keep(takes []shard.Take)
}
