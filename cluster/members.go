package cluster

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/ring"
)

// writer returns the id of the node that is to write the next view: the first
// ready one among the members, which know who is reachable, or among all nodes
// if no member is ready. It returns "" if nobody is.
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
	joins   bool     // somebody comes in, which may wait for company
	urgent  bool     // somebody leaves or was restarted: nothing to wait for
	drops   bool     // somebody is gone without a word
	suspect bool     // somebody's key is gone, but it stays for now: look again soon
	leftOut int      // ready nodes for which the ring has no room
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
		m := Member{ID: n.ID, Address: n.Address, Incarnation: n.Incarnation}
		if current == nil {
			joining = append(joining, m)
		} else if i, isMember := current.Index(n.ID); !isMember {
			joining = append(joining, m)
		} else {
			c.members = append(c.members, m)
			c.urgent = c.urgent || current.Members[i] != m
		}
	}
	if current != nil {
		mayDrop := max(1, len(current.Members)/3)
		for _, m := range current.Members {
			n, hasKey := byID[m.ID]
			switch {
			case hasKey && n.State == Ready: // is in already
			case hasKey && n.State == Leaving:
				c.urgent = true
			case hasKey: // it was restarted and will say when it is ready
				c.members = append(c.members, m)
			case mayDrop == 0 || !gone(m.ID):
				c.members = append(c.members, m)
				c.suspect = true
			default:
				mayDrop--
				c.drops = true
			}
		}
	}
	room := max(0, min(len(joining), most-len(c.members)))
	c.members = append(c.members, joining[:room]...)
	c.joins, c.leftOut = room > 0, len(joining)-room
	slices.SortFunc(c.members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	if !c.joins && !c.urgent && !c.drops {
		c.members = nil
	}
	return c
}

// nextView builds the view that follows current with these members.
func nextView(p ring.Params, current *View, members []Member) (*View, error) {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.ID
	}
	r, err := ring.Build(p, names)
	if err != nil {
		return nil, err
	}
	v := &View{Number: 1, Members: members, Ring: r}
	if current != nil {
		v.Number = current.Number + 1
	}
	return v, nil
}
