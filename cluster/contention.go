package cluster

import (
	"time"

	"github.com/weirlimit/weir/shard"
)

// A take that is denied only because of tentative takes is Contended: the groups of those takes are not decided yet,
// and may give them back. Its own group gives back what it has taken, and is asked again until the owner is certain. A
// group that waits holds nothing, so that two groups never wait for each other.

// Bounds of the wait for tentative takes of others.
const (
	contendedFor   = 4                      // attempts: how long a group is asked again at most,
	contendedMost  = 100 * time.Millisecond // or for so long
	contendedPause = time.Millisecond
	maxContended   = 8 * time.Millisecond // the longest pause before it is asked again; pauses double until then
	ampleShare     = 4                    // a take that leaves less than an ampleShare-th of the limit is confirmed at once
)

// contended reports whether nothing denies g but takes that are Contended.
func contended(g *shard.Group) (found bool) {
	if g.Allowed {
		return false
	}
	for i := range g.Takes {
		t := &g.Takes[i]
		if t.Shadow || !denies(t) {
			continue
		}
		if !t.Contended || t.Source == shard.Overloaded || t.Source == shard.Undecided {
			return false
		}
		found = true
	}
	return found
}

// firstContended returns the index of the first contended group, len(groups) if there is none.
func firstContended(groups []shard.Group) int {
	for i := range groups {
		if contended(&groups[i]) {
			return i
		}
	}
	return len(groups)
}
