package ownership

import (
	"context"
	"time"
)

// sender sends a peer changes, deltas and requests in turn, on a goroutine of its own.
type sender struct {
	*peer
	node   *Node
	turn   uint32 // the partition with which pack begins
	copies copyPace
	way    time.Duration // the least that a call has taken, 0 before the first one: about that of the way there and back
	worked time.Duration // for the last call, by nodes
	retry  bool          // a message is to be sent again soon
	buf    []byte        // for the records of one message
	ends   bool          // some of what pack has looked at ends with a final state
}

// pause waits, until ctx ends or a final state is due that was not before.
func (c *sender) pause(ctx context.Context, wait time.Duration) {
	var final <-chan struct{}
	if !c.ends {
		final = c.finalDue()
	}
	pause(ctx, wait, final)
}
