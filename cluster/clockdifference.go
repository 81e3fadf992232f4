package cluster

import "time"

// A node decides by the wall clock as it was when the node started, and what the monotonic clock has counted since. A partition goes from one node
// to another, so their clocks must be close: by a clock that is ahead a window ends before its time, and what was granted in it is granted again.

// MaxClockDifference is how far the clocks of two nodes may be apart. Shorter windows are over while their partition moves. It does not
// depend on the rules in force, which change after a node has joined; and clocks that NTP keeps are closer by far.
const MaxClockDifference = time.Second

// clockKnown is how long the comparison with a member that answers no more counts.
const clockKnown = 10 * heartbeatEvery

// aheadOf returns by how much another node's clock is ahead, which was read between two instants of this node's, all in Unix
// nanoseconds. What the way there and back may account for is no difference. A clock at 0 was not read.
func aheadOf(clock, asked, answered int64) time.Duration {
	switch {
	case clock == 0 || asked == 0:
		return 0
	case clock > answered:
		return time.Duration(clock - answered)
	case clock < asked:
		return time.Duration(clock - asked)
	}
	return 0
}

// ClockDifference says by how much a member's clock is ahead of this node's at least, negative if it is behind.
type ClockDifference struct {
	ID    string
	Ahead time.Duration
}

// TooFar reports whether the two clocks are further apart than they may be.
func (d ClockDifference) TooFar() bool { return d.Ahead.Abs() > MaxClockDifference }
