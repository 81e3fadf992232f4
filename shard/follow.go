package shard

import (
	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Follower says for whom the changes of a partition are tracked.
type Follower uint8

// The followers.
const (
	// ToStandby is the node that stands by.
	ToStandby Follower = 0
	// ToMover is the node that the partition moves to.
	ToMover Follower = 1
)

// Follow tracks changes of p for follower f: everything there is now, then what changes.
func (s *Shard) Follow(p uint32, f Follower) {}

// Unfollow forgets follower f of p.
func (s *Shard) Unfollow(p uint32, f Follower) {}

// Follows reports whether f follows p.
func (s *Shard) Follows(p uint32, f Follower) bool { return false }

// Changes appends records of what follower f has not been given yet, at most about
// max bytes, and says whether more is left.
func (s *Shard) Changes(p uint32, f Follower, buf []byte, max int) (records []byte, more bool) {
	return buf, false
}

// Apply lays records over what there is in p, which is closed.
func (s *Shard) Apply(p uint32, records []byte) error { return nil }

// Clear forgets all content of p.
func (s *Shard) Clear(p uint32) {}

// OnUrgent has f called when a counter that ToStandby follows crosses a twentieth of its limit.
func (s *Shard) OnUrgent(f func(p uint32)) {}

// Grant is what was granted of one counter in provisional service.
type Grant struct {
	Key   ring.Key
	Limit algorithms.Limit
	State algorithms.State
	Long  *algorithms.Long // of long algorithms
}

// Grants takes away up to max grants that were kept apart in p; they stay in its content.
func (s *Shard) Grants(p uint32, max int) []Grant { return nil }

// AddGrants merges grants into open partitions. It returns those whose partition is closed.
func (s *Shard) AddGrants(grants []Grant) (moved []Grant) { return grants }
