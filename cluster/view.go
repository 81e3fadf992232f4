package cluster

import (
	"slices"
	"strings"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
)

// Life is one life of a node.
type Life = view.Life

// View is what a router needs of a view: its members, and the owner and the standby of each partition. It is immutable.
type View struct {
	// Number rises by one with every view of a cluster, from 1.
	Number uint64
	// Members are sorted by ID. Ring's indices point into them.
	Members []Member
	// Ring says which members have the partitions, and stand by. A partition without a standby has its owner as such.
	Ring *ring.Ring
}

// Member is a node in a view.
type Member struct {
	ID          string
	Address     string // host:port of gRPC
	Incarnation uint64 // of the node when it was admitted
	// Leaving says that the member is to have no partitions, and may have some still.
	Leaving bool
	// Gone says that it is no member any more, and that its address is kept because a partition names it.
	Gone bool
}

// Index returns the index of the member with that id, and whether there is one.
func (v *View) Index(id string) (int, bool) {
	return slices.BinarySearchFunc(v.Members, id, func(m Member, id string) int {
		return strings.Compare(m.ID, id)
	})
}

// Present returns the members of a view that are not gone, also of none.
func (v *View) Present() []Member {
	if v == nil {
		return nil
	}
	if !slices.ContainsFunc(v.Members, isGone) {
		return v.Members
	}
	return slices.DeleteFunc(slices.Clone(v.Members), isGone)
}

func isGone(m Member) bool { return m.Gone }

// staying returns how many members are not leaving.
func staying(members []Member) (n int) {
	for _, m := range members {
		if !m.Leaving {
			n++
		}
	}
	return n
}

// IsMember reports whether a view, also none, has a member of that id that is not gone.
func (v *View) IsMember(id string) bool {
	i, named := viewIndex(v, id)
	return named && !v.Members[i].Gone
}

func viewIndex(v *View, id string) (int, bool) {
	if v == nil {
		return 0, false
	}
	return v.Index(id)
}

func (m Member) life() Life { return Life{ID: m.ID, Incarnation: m.Incarnation} }

// RoutingView returns what a router needs of a view that names the node which has each partition. A life that is gone and that a partition names is a member: it may still answer.
func RoutingView(v *view.View) (*View, error) {
	routing := &View{Number: v.Number}
	index := make(map[view.Life]uint16, len(v.Members))
	for _, m := range v.Members {
		member := Member{ID: m.ID, Address: m.Address, Incarnation: m.Incarnation, Leaving: m.State == view.Leaving, Gone: m.State == view.Gone}
		if n := len(routing.Members); n > 0 && routing.Members[n-1].ID == m.ID { // sorted by incarnation: a later life takes its place
			routing.Members[n-1] = member
		} else {
			routing.Members = append(routing.Members, member)
		}
		index[m.Life] = uint16(len(routing.Members) - 1)
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
	return routing, err
}
