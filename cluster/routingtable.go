package cluster

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// noMember is an index that no member has.
const noMember = -1

// routingTable is what the router routes by, and says which member is to be asked; immutable, except the routes.
type routingTable struct {
	full    *fullKeys // the router's
	id      string    // this node's
	locator Locator
	started time.Time // hotCounters.started

	view   *View
	self   int             // this node's member index, -1 if it is none
	peers  []*peer         // by member index; nil for this node itself
	marks  []uint64        // by member index; of their ids
	routes []atomic.Uint32 // by partition: the index of the member that is asked for it
	began  time.Time
	vacant []atomic.Int64 // by partition: until when, since began, its owner is not believed to have it
}

// route returns the index of the member that is asked for k's counter.
func (t *routingTable) route(k ring.Key) int { return int(t.routes[t.partition(k)].Load()) }

// partition returns the partition of k's counter.
func (t *routingTable) partition(k ring.Key) uint32 { return k.Partition(uint32(len(t.routes))) }

// owner returns the index of the member that owns k's counter in the view.
func (t *routingTable) owner(k ring.Key) int { return t.view.Ring.Owner(t.partition(k)) }

// standby returns the index of the member that stands in for the owner of k's counter, or else of the standby; noMember if there is only the owner.
func (t *routingTable) standby(k ring.Key) int {
	p := t.partition(k)
	if i, member := t.view.Index(t.locator.StandIn(p)); member {
		return i
	}
	if s := t.view.Ring.Standby(p); s != t.view.Ring.Owner(p) {
		return s
	}
	return noMember
}

// routeOf returns the index of the member that is asked for the counters of g, and
// whether it is asked for them all, in one request.
func (t *routingTable) routeOf(g *shard.Group) (to int, all bool) {
	if len(g.Takes) == 0 || len(g.Takes) > maxTakes {
		return 0, false
	}
	to = t.route(g.Takes[0].Key)
	for i := 1; i < len(g.Takes); i++ {
		if t.route(g.Takes[i].Key) != to {
			return to, false
		}
	}
	return to, true
}

// conn returns the conn to a member for k, and for all groups that begin with it. All requests about
// one partition take one conn, so that the node that decides gets them in the order in which they
// were sent, except requests to standbys.
func (t *routingTable) conn(to int, k ring.Key) *conn {
	c, _ := t.numbered(to, k, false)
	return c
}

// numbered returns the conn to a member for k, and a number that no other conn of the
// table has.
func (t *routingTable) numbered(to int, k ring.Key, standby bool) (c *conn, number int) {
	conns := t.peers[to].conns
	i := len(conns) - 1
	if !standby || !conns[i].healthy.Load() { // it may come up, or break, some moments before or after the others
		i = int(t.partition(k)) % i
	}
	return conns[i], to*maxConns + i
}

// redirectedHere has others asked for those counters of g that the local shard does not have.
func (t *routingTable) redirectedHere(g *shard.Group) {
	for i := range g.Takes {
		take := &g.Takes[i]
		if take.Source == shard.Redirected && t.self >= 0 && !t.redirect(take.Key, t.self, t.ownerMark(take.Key)) {
			g.Lost = true
		}
	}
}

// ownerMark returns the mark of the member that has k's counter, as Locator do; 0 if it knows
// of none.
func (t *routingTable) ownerMark(k ring.Key) uint64 {
	if id := t.ownerID(k); id != "" {
		return markOf(id)
	}
	return 0
}

// isOwnerOf reports whether this node has k's counter, decide about it or not.
func (t *routingTable) isOwnerOf(k ring.Key) bool { return t.ownerID(k) == t.id }

// ownerID returns the id of the member that has k's counter, as far as this node knows; ""
// if it does not, or before the first view.
func (t *routingTable) ownerID(k ring.Key) string {
	if t == nil {
		return ""
	}
	id, ok := t.locator.OwnerOf(t.partition(k))
	if !ok {
		return ""
	}
	return id
}

// has returns the id of the member that has k's counter, as far as this node knows: the owner, if it
// does not.
func (t *routingTable) has(k ring.Key) string {
	if id := t.ownerID(k); id != "" {
		return id
	}
	return t.view.Members[t.owner(k)].ID
}

// keeps reports whether this node may decide g from copies: it is the owner or the standby of all
// counters.
func (t *routingTable) keeps(g *shard.Group) bool {
	if t.self < 0 {
		return false
	}
	for i := range g.Takes {
		if k := g.Takes[i].Key; t.owner(k) != t.self && t.standby(k) != t.self {
			return false
		}
	}
	return true
}

// mayUseCopies reports whether this node may decide g from its copies: it is the owner or the standby of all counters, and these copies are
// ones to grant from.
func (t *routingTable) mayUseCopies(g *shard.Group) bool {
	return t.keeps(g) && !slices.ContainsFunc(g.Takes, func(take shard.Take) bool {
		return !t.locator.IsGrantable(t.partition(take.Key))
	})
}

// hasAll reports whether this node has all counters of g: others may have been asked while it got them.
func (t *routingTable) hasAll(g *shard.Group) bool {
	return !slices.ContainsFunc(g.Takes, func(take shard.Take) bool { return !t.isOwnerOf(take.Key) })
}

// allowCopy lets g be decided from copies where the local shard has no more. What this node
// has itself is none: if it does not decide, it must not.
func (t *routingTable) allowCopy(g *shard.Group) {
	g.Lend = 0
	g.Provisional = !slices.ContainsFunc(g.Takes, func(take shard.Take) bool { return t.isOwnerOf(take.Key) })
}

// peerOf returns the peer through which a member is asked, nil for this node and for noMember.
func (t *routingTable) peerOf(member int) *peer {
	if member == noMember {
		return nil
	}
	return t.peers[member]
}

// forsake turns the routes of g's counters from the member from, which does not answer, back to their owners. It reports whether it
// has changed a route.
func (t *routingTable) forsake(from int, g *shard.Group) (changed bool) {
	for i := range g.Takes {
		k := g.Takes[i].Key
		if t.route(k) == from && t.owner(k) != from {
			t.redirect(k, from, 0)
			changed = true
		}
	}
	return changed
}

// owns reports whether a counter of g is the member's by the view.
func (t *routingTable) owns(member int, g *shard.Group) bool {
	return slices.ContainsFunc(g.Takes, func(take shard.Take) bool { return t.owner(take.Key) == member })
}

// redirect notes that the member from does not have k's counter, but the one of that
// mark; or else, for all that is known, the view's owner. An owner that names itself has
// nothing of it. redirect reports whether that is another member than from.
func (t *routingTable) redirect(k ring.Key, from int, mark uint64) (elsewhere bool) {
	p := t.partition(k)
	to, owner := slices.Index(t.marks, mark), t.owner(k)
	if from == owner && mark == t.marks[from] {
		t.vacant[p].Store(int64(time.Since(t.began) + probeEvery))
	}
	if to < 0 || to == from {
		to = owner
	}
	t.routes[p].CompareAndSwap(uint32(from), uint32(to))
	return to != from
}

// isVacant reports whether the owner of k's counter has said just now that it has nothing of it,
// and another member may.
func (t *routingTable) isVacant(k ring.Key) bool {
	until := t.vacant[t.partition(k)].Load()
	return until > 0 && int64(time.Since(t.began)) < until && t.standby(k) != noMember
}

// reaches reports whether all members answer that are asked for g.
func (t *routingTable) reaches(g *shard.Group) bool {
	for i := range g.Takes {
		k := g.Takes[i].Key
		if to := t.route(k); !t.answers(to, k) || to == t.owner(k) && t.isVacant(k) {
			return false
		}
	}
	return true
}

// answers reports whether the member to answers requests about k.
func (t *routingTable) answers(to int, k ring.Key) bool {
	return t.peers[to] == nil || t.conn(to, k).healthy.Load()
}

// loses reports whether the member from is to be asked for g again, although it has just named no other member that
// has a counter of g. The route alone does not tell: while a partition moves, the answers to others turn it back to
// from at any time.
func (t *routingTable) loses(from int, g *shard.Group) bool {
	if !g.Lost {
		return false
	}
	for i := range g.Takes {
		if take := &g.Takes[i]; take.Source == shard.Redirected && t.route(take.Key) == from && !t.isVacant(take.Key) {
			return true
		}
	}
	return false
}

// doubts reports whether the member that is asked for g is late to say anything.
func (t *routingTable) doubts(to int, g *shard.Group) bool {
	return t.peers[to] != nil && t.conn(to, g.Takes[0].Key).doubtful(time.Now())
}

// isMoving reports whether the owner has answered that it does not decide g, and another node is about to: no copy is decided from meanwhile. An owner that
// names itself is about to do nothing.
func (t *routingTable) isMoving(g *shard.Group) bool {
	return redirected(g) && !t.isVacant(g.Takes[0].Key)
}

// inOnePartition reports whether all counters of g are.
func (t *routingTable) inOnePartition(g *shard.Group) bool {
	first := t.partition(g.Takes[0].Key)
	return !slices.ContainsFunc(g.Takes, func(take shard.Take) bool { return t.partition(take.Key) != first })
}
