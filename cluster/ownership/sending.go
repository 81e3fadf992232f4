package ownership

import (
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// sending is what a node sends others of one partition.
type sending struct {
	feeds   [followers]feed      // by follower of the shard; of different nodes
	final   Request              // the final state that is due, to the owner of the newest view; Term 0 for none
	standby atomic.Pointer[peer] // whom the owner feeds as standby, nil for none; for those that do not lock
	learner atomic.Pointer[peer] // whom it feeds apart from the standby, likewise
}

// feed is how far a node is fed. The zero value is that of none. Its place in partition.feeds is its number as a follower of the shard.
type feed struct {
	to view.Life
	progress
	known
	// brief is since when it has been given short-lived counters, the zero time if it is not.
	brief time.Time
	// rests says that there was nothing to send when this node looked last, after it had ceased to decide for good.
	rests bool
	// later is until when nothing is sent: it could not be taken.
	later time.Time
	// base is the version of the copy that the node has already, of which it is sent the changes; or zero.
	base replica.Version
	// finalFor is the term of the owner for which this feed ends with the final state; else 0.
	finalFor uint64
}

// progress is which messages of a feed were made.
type progress struct {
	session uint64
	index   uint64   // of the last message
	unsent  *Changes // that message, until it has arrived; or nil
	round   uint64   // of unsent, as Observer counts
}

// known is what is known of the copy of the node that is fed.
type known struct {
	// version and acknowledged are those of the last message with which it was complete, zero before.
	version      replica.Version
	acknowledged replica.Acknowledged
	told         uint64 // the last view in which the node has reported that it is complete
}

// isCopy reports whether the receiver has no complete copy yet, and no final state is due: then there is no hurry.
func (d *feed) isCopy() bool {
	return d.version == (replica.Version{}) && d.base == (replica.Version{}) && d.finalFor == 0
}
