package cluster

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/ring"
)

// writer returns the id of the node that is to write the next view: the first ready one among the members,
// which know who is reachable, or among all nodes if no member is ready. It returns "" if none is.
func writer(current *View, nodes []Node) string {
	first := ""
	for _, n := range nodes { // sorted by id
		if n.State != Ready {
			continue
		}
		if current != nil {
			if _, isMember := current.Index(n.ID); isMember {
				return n.ID
			}
		}
		if first == "" {
			first = n.ID
		}
	}
	return first
}

// change is how the members of the next view differ from the current one's.
type change struct {
	members []Member // sorted by id; nil if nothing is to change
	joins   bool     // a member joins, which may wait for others
	urgent  bool     // a member leaves or was restarted: nothing to wait for
	drops   bool     // a member is gone without notice
	suspect bool     // a member's key is gone, but it stays for now: look again soon
	lost    []string // members whose counters are gone: dropped, or restarted
	leftOut int      // ready nodes for which the ring has no room
}

func appendIf(ids []string, id string, condition bool) []string {
	if condition {
		return append(ids, id)
	}
	return ids
}

// nextMembers decides who should be a member. Ready nodes are; leaving ones are
// not. A member whose key is gone stays until it is gone in the writer's own eyes
// as well, and at most a third of the members is dropped at a time: when etcd
// loses all keys at once, the cluster stays as it is.
//
// There are never more than most: those that are in stay, and of those that would
// join the first by id come in.
func nextMembers(current *View, nodes []Node, most int, gone func(id string) bool) change {
	var c change
	var joining []Member
	byID := make(map[string]Node, len(nodes))
	for _, n := range nodes {
		byID[n.ID] = n
		if n.State != Ready {
			continue
		}
		m := n.Member()
		if current == nil {
			joining = append(joining, m)
		} else if i, isMember := current.Index(n.ID); !isMember {
			joining = append(joining, m)
		} else {
			c.members = append(c.members, m)
			c.urgent = c.urgent || current.Members[i] != m
			c.lost = appendIf(c.lost, m.ID, current.Members[i].Incarnation != m.Incarnation)
		}
	}
	if current != nil {
		mayDrop := max(1, len(current.Members)/3)
		for _, m := range current.Members {
			n, hasKey := byID[m.ID]
			switch {
			case hasKey && n.State == Ready: // is in already
			case hasKey && n.State == Left && n.Incarnation == m.Incarnation:
				c.urgent = true
			case hasKey && n.State == Leaving && n.Incarnation == m.Incarnation:
				c.urgent = c.urgent || !m.Leaving
				m.Leaving = true
				c.members = append(c.members, m)
			case hasKey: // it was restarted and will say when it is ready
				c.members = append(c.members, m)
			case mayDrop == 0 || !gone(m.ID):
				c.members = append(c.members, m)
				c.suspect = true
			default:
				mayDrop--
				c.drops = true
				c.lost = append(c.lost, m.ID)
			}
		}
	}
	room := max(0, min(len(joining), most-staying(c.members)))
	c.members = append(c.members, joining[:room]...)
	c.joins, c.leftOut = room > 0, len(joining)-room
	slices.SortFunc(c.members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	if !c.joins && !c.urgent && !c.drops || staying(c.members) == 0 {
		c.members = nil
	}
	return c
}

// staying returns how many members are not leaving.
func staying(members []Member) (n int) {
	for _, m := range members {
		if !m.Leaving {
			n++
		}
	}
	return n
}

// nextView builds the view that follows current with these members. What the lost ones
// owned begins a new epoch.
func nextView(p ring.Params, current *View, members []Member, lost []string) (*View, error) {
	var names []string
	var index []uint16 // of those names, in members
	for i, m := range members {
		if !m.Leaving {
			names = append(names, m.ID)
			index = append(index, uint16(i))
		}
	}
	r, err := ring.Build(p, names)
	if err != nil {
		return nil, err
	}
	if r, err = r.Renumber(index, len(members)); err != nil {
		return nil, err
	}
	if current == nil {
		return firstView(members, r), nil
	}
	v := current.next()
	v.Members, v.Ring = members, r
	if !sameIDs(current.Members, members) {
		v.Changed, v.Before = v.Number, livesOf(current.Members)
		v.Ended = slices.DeleteFunc(v.Ended, func(l Life) bool { return v.IsMember(l.ID) && !current.IsMember(l.ID) }) // it was removed, and lives
	}
	v.forget()
	for part := range v.Epochs {
		if owner := current.Members[current.Ring.Owner(uint32(part))]; slices.Contains(lost, owner.ID) {
			v.refound(part)
		}
	}
	return v, nil
}

func firstView(members []Member, r *ring.Ring) *View {
	v := &View{Number: 1, Changed: 1, Members: members, Ring: r, Epochs: make([]uint64, r.Partitions()), Bases: make([]uint64, r.Partitions())}
	for part := range v.Epochs {
		v.Epochs[part] = 1
	}
	return v
}

// next returns a view that follows v, and says the same.
func (v *View) next() *View { return v.As(v.Number + 1) }

// As returns a view of that number that says the same as v, which has a lower one.
func (v *View) As(number uint64) *View {
	n := *v
	n.Number = number
	n.Epochs, n.Bases = slices.Clone(v.Epochs), slices.Clone(v.Bases)
	n.Ended, n.GivenUp = slices.Clone(v.Ended), slices.Clone(v.GivenUp)
	return &n
}

// refound begins a new epoch for a partition of a view that is not yet known.
func (v *View) refound(part int) { v.Bases[part], v.Epochs[part] = v.Epochs[part], v.Number }
