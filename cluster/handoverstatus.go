package cluster

import (
	"math"
	"time"
)

// HandoverStatus says how far handover is.
type HandoverStatus struct {
	// Active is in how many partitions this node decides, Wanted how many are to be its own in which it does not decide yet, and Leaving how
	// many it has that are to be another node's, or of which it has something that others must have before it leaves.
	Active, Wanted, Leaving int
	// Until is when this node's decision lease ends if neither etcd nor a majority confirms it any more, the zero
	// time if it never does.
	Until time.Time
	// State is what the node is doing, by its own word: Ready exactly if GET /readyz says so. It is unknown, "",
	// of a member that has not answered a heartbeat yet.
	State State
}

// left returns how many seconds of the decision lease are left.
func (s HandoverStatus) left(now time.Time) float64 {
	if s.Until.IsZero() {
		return math.Inf(1)
	}
	return max(0, s.Until.Sub(now).Seconds())
}
