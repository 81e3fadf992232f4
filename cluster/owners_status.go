package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// HandoverStatus returns how far handover is.
func (o *Owners) HandoverStatus() HandoverStatus {
	s := HandoverStatus{State: o.State()}
	until, forever := o.node.Until()
	if !forever {
		s.Until = until
	}
	counts := o.node.Count()
	if o.IsOver() {
		counts.Deciding = 0
	}
	if v := o.View(); v != nil && v.IsLeaving(o.life()) {
		s.Leaving = counts.Deciding + counts.Waiting + counts.Standby + counts.Owed
		return s
	}
	s.Active, s.Wanted, s.Leaving = counts.Deciding, counts.Waiting+counts.Planned, counts.Owed
	return s
}

// Deciding returns by partition the term in which this node decides at the moment, 0 where it does not.
func (o *Owners) Deciding() []uint64 {
	return o.node.Deciding()
}

// Worth says in a line what this node's counters of p are worth.
func (o *Owners) Worth(p uint32) string {
	r, deltas := o.node.Replica(p)
	state := [...]string{replica.None: "none", replica.Learning: "learning", replica.Following: "following", replica.Waiting: "waiting", replica.Deciding: "deciding"}[r.State]
	return fmt.Sprintf("view %d: %s, version %d/%d, owner %s of term %d, standby %s, predecessors %v, heard %v, %d deltas",
		r.Claim.Number, state, r.Version.Term, r.Version.Sequence, r.Claim.Owner.ID, r.Claim.Term, r.Claim.Standby.ID, r.Claim.Predecessors, r.Heard, deltas)
}

// View returns the newest view, nil before the first.
func (o *Owners) View() *view.View { return o.node.View() }

// Newest returns the view by which this node routes, nil before the first.
func (o *Owners) Newest() *View { return o.Router.View() }

// Doubts returns which lives have not adopted the last change of members for a while, so that members cannot change again, and which were given up
// and may still decide if they live. Both are sorted by id.
func (o *Owners) Doubts() (missing, givenUp []Life) {
	reports := o.Reports()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.view == nil {
		return nil, nil
	}
	if !o.view.Confirmed(reports) && time.Since(o.changed) >= doubtAfter {
		missing = o.view.Missing(reports)
	}
	return missing, slices.Clone(o.view.GivenUp)
}

// Sought reports whether this node has a view, which names the node that has each partition.
func (o *Owners) Sought() bool { return o.number() > 0 }

// SnapshotCopies returns this node's copies, as snapshots have them.
func (o *Owners) SnapshotCopies() SnapshotCopies {
	return SnapshotCopies{ownership.Snapshots{Node: o.node}, o.Shard, o.params.Partitions}
}

// lags returns by member how late the copies are that it has of what this node decides: 0 of one that is no standby.
func (o *Owners) lags(now time.Time) map[string]time.Duration {
	standbys := make(map[*otherMember]bool)
	for p := range o.standbys {
		standbys[o.standbys[p].Load()] = true
	}
	lags := make(map[string]time.Duration)
	for _, c := range o.knownMembers.all() {
		lag := time.Duration(0)
		if standbys[c] {
			lag = c.lag.at(now)
		}
		lags[c.member.ID] = max(lags[c.member.ID], lag)
	}
	return lags
}
