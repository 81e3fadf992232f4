package cluster

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// standsBy returns whom to ask about a counter if this node does not reach the one that has
// it: the standby; but if there is none, or it does not answer either, the try-th of the members that reach one of them, before
// it. Without a standby it is none if the owner has said itself that it does not have it, as others would hear the same; and one at most, if
// the owner answers this node, but late.
func (t *routingTable) standsBy(try int, moved bool) func(ring.Key) int {
	return func(k ring.Key) int {
		standby := t.standby(k)
		switch {
		case standby == noMember && (moved || try > 0 && t.answers(t.owner(k), k)):
			return noMember
		case standby == t.self, standby != noMember && t.answers(standby, k):
			return standby
		}
		if relay := t.relayFor(try)(k); relay != noMember {
			return relay
		}
		return standby
	}
}

// relayFor returns whom to ask about a counter if neither the one that has it nor the standby answers this node: the try-th of
// the members that reach one of them, noMember if there are no more.
func (t *routingTable) relayFor(try int) func(ring.Key) int {
	return func(k ring.Key) int {
		relays := t.relaysTo(k, t.has(k))
		if standby := t.standby(k); len(relays) == 0 && standby != noMember {
			relays = t.relaysTo(k, t.view.Members[standby].ID)
		}
		if try < len(relays) {
			return relays[try]
		}
		return noMember
	}
}

// relaysTo returns the indices of some members that have said that they reach the one of that id, and are
// asked about k's counter in its place. Some may not know yet that they do not any more, and some may have been cut off
// from this node with it: members that are late to say anything come last.
func (t *routingTable) relaysTo(k ring.Key, id string) (members []int) {
	if id == "" || id == t.id {
		return nil
	}
	var late []int
	now := time.Now()
	for _, by := range t.locator.Reaching(id) {
		i, member := t.view.Index(by)
		switch {
		case !member, i == t.self, i == t.owner(k), !t.answers(i, k):
		case t.conn(i, k).doubtful(now):
			late = append(late, i)
		default:
			members = append(members, i)
		}
	}
	members = append(members, late...)
	return members[:min(len(members), maxRelays)]
}

// direct returns the member that is said to have g, noMember if that one is late to say anything. If the member on the route does not
// answer, the Locator may name another one.
func (t *routingTable) direct(g *shard.Group, _ role) (to int) {
	t.redirectedHere(g)
	to, one := t.routeOf(g)
	if other := t.otherOwner(g, asStandby); other != noMember {
		to = other
	}
	if !one || t.doubts(to, g) {
		return noMember
	}
	return to
}

// hinted is direct once a member was asked: an owner that has just said that it has nothing of g would say so again.
func (t *routingTable) hinted(g *shard.Group, how role) (to int) {
	to = t.direct(g, how)
	if k := g.Takes[0].Key; to == t.owner(k) && t.isVacant(k) {
		return noMember
	}
	return to
}

// otherOwner returns the member that has g as the Locator says, if the member on the route does not answer and is another one; else noMember.
func (t *routingTable) otherOwner(g *shard.Group, _ role) int {
	to, one := t.routeOf(g)
	k := g.Takes[0].Key
	if i, member := t.view.Index(t.has(k)); one && member && i != to && !t.answers(to, k) {
		return i
	}
	return noMember
}

// inDoubt returns the member that is said to have g and is late to say anything, if this node would decide from a copy now; else noMember. A
// node that would not says at once that it does not reach that member, so that others are asked.
func (t *routingTable) inDoubt(g *shard.Group, _ role) (to int) {
	to, one := t.routeOf(g)
	if !one || !t.doubts(to, g) || !t.keeps(g) {
		return noMember
	}
	return to
}

// inTime reports whether a member answers, and does so while a caller waits for what is relayed to it.
func (t *routingTable) inTime(i int, g *shard.Group) bool {
	p := t.peers[i]
	return p != nil && t.answers(i, g.Takes[0].Key) && !t.doubts(i, g) && p.spared.Load() <= int64(time.Since(t.started))
}

// indirect returns which member is asked for g in the place of the one that has it, if this node does not reach that. If this node may
// decide from a copy, that is the try-th member that reaches it, as this node decides only if none does. Else it is the standby, for a node that does not
// reach that. Of others' requests the one that has it was asked just now, if it answers at all. The asker does not reach it in time: it would not ask else.
func indirect(asker string, others bool, try int) func(*routingTable, *shard.Group, role) int {
	return func(t *routingTable, g *shard.Group, how role) int {
		k := g.Takes[0].Key
		switch {
		case how != asStandby:
			return noMember
		case !t.keeps(g):
			if try > 0 {
				return noMember
			}
			return t.standby(k)
		}
		has := t.has(k)
		if i, member := t.view.Index(has); others && member && t.inTime(i, g) { // it has said that it does not have it
			return noMember
		}
		relays := slices.DeleteFunc(t.relaysTo(k, has), func(i int) bool { return t.view.Members[i].ID == asker })
		if try < len(relays) {
			return relays[try]
		}
		return noMember
	}
}
