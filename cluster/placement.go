package cluster

import (
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
)

// RoutingView returns what a router needs of a view that names the node which has each partition. It has no epochs. A partition without a standby has its
// owner as such, as in a ring of one node. A life that is gone and that a partition names is a member: it may still answer.
func RoutingView(v *view.View) (*View, error) {
	routing := &View{Number: v.Number, Changed: v.Changed, Waived: v.Waived}
	index := make(map[view.Life]uint16, len(v.Members))
	for _, m := range v.Members {
		member := Member{ID: m.ID, Address: m.Address, Incarnation: m.Incarnation, Leaving: m.State == view.Leaving, Gone: m.State == view.Gone}
		if n := len(routing.Members); n > 0 && routing.Members[n-1].ID == m.ID { // sorted by incarnation: a later life takes its place
			routing.Members[n-1] = member
			index[m.Life] = uint16(n - 1)
			for l := range index {
				if l.ID == m.ID {
					index[l] = uint16(n - 1)
				}
			}
			continue
		}
		index[m.Life] = uint16(len(routing.Members))
		routing.Members = append(routing.Members, member)
	}
	owner, standby := make([]uint16, len(v.Partitions)), make([]uint16, len(v.Partitions))
	for p := range v.Partitions {
		part := &v.Partitions[p]
		owner[p] = index[part.Owner]
		standby[p] = owner[p]
		if part.Standby != (view.Life{}) {
			standby[p] = index[part.Standby]
		}
	}
	var err error
	routing.Ring, err = ring.FromTables(owner, standby, len(routing.Members))
	for _, l := range v.Before {
		routing.Before = append(routing.Before, Life(l))
	}
	for _, l := range v.Ended {
		routing.Ended = append(routing.Ended, Life(l))
	}
	for _, l := range v.GivenUp {
		routing.GivenUp = append(routing.GivenUp, Life(l))
	}
	return routing, err
}
