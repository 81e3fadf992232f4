package ownership

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// If all nodes that may have decided for a partition are gone, a node begins that has no copy, or one from a snapshot. Other members may
// have better ones: learners, or nodes with later snapshots. The owner asks all members for the versions of their copies, and takes over the
// latest. It waits for the end of its predecessors anyway, and asks those that become members meanwhile, too. After a restart of all nodes it
// waits for those that were members with it before: each may have the latest counters on its disk. It grants from its copy meanwhile.

const (
	// salvagePatience is how long an owner without a copy waits for copies of others, from when it is owner, or the last has answered.
	salvagePatience = 3 * time.Second
	// restartPatience is how long an owner waits for nodes to come back that were stopped with it, from when it is a member: etcd may be back late.
	restartPatience = 10 * time.Second
)

// salvage is how far the search for the best copy is. The zero value is that of none.
type salvage struct {
	restored bool        // the copy is from a snapshot
	since    time.Time   // when it began, or the last has answered; the zero time if this node does not wait as an owner without a copy
	isDone   bool        // all members that were reached have answered, and none has a later copy
	asked    []view.Life // the members that have answered
	best     view.Life   // the one with the latest copy, if that is later than this node's
	version  replica.Version
}

// beginSalvage has the best copy searched if this node is to begin without one. had says whether it had one, not from a snapshot. x.mu is held.
func (x *partition) beginSalvage(had bool) {
	switch {
	case x.replica.State != replica.Waiting:
		x.in.search.since, x.in.search.isDone = time.Time{}, false
	case !had && x.in.search.since.IsZero() && len(x.replica.Claim.Predecessors) > 0:
		x.in.search = salvage{restored: x.in.search.restored, since: time.Now(), version: x.replica.Version}
	}
	if x.replica.State == replica.Deciding {
		x.in.search.restored = false
	}
}

// searches reports whether this node takes over the best copy that it finds.
func (x *partition) searches() bool {
	return !x.in.search.since.IsZero() && x.replica.State == replica.Waiting
}

// salvages reports whether this node does not decide before it has found the best copy.
func (x *partition) salvages() bool {
	s := &x.in.search
	if !x.searches() || s.isDone {
		return false
	}
	end := s.since.Add(salvagePatience)
	if x.node.lacksStopped(s.asked) {
		patience := x.node.restartOver()
		if s.best != (view.Life{}) {
			patience = patience.Add(salvagePatience)
		}
		if patience.After(end) {
			end = patience
		}
	}
	return time.Now().Before(end)
}

// restartOver returns until when this node waits for nodes that were stopped with it. A partition of which it is owner is in a view that it is a member of.
func (n *shared) restartOver() time.Time { return time.Unix(0, n.joined.Load()).Add(restartPatience) }

// lacksStopped reports whether a node was stopped with this one, and its later life is not among those that have answered. No node was if a life
// that was a member then is reached.
func (n *shared) lacksStopped(asked []view.Life) bool {
	if slices.ContainsFunc(n.expected, n.Peers.Reaches) {
		return false
	}
	return slices.ContainsFunc(n.expected, func(l view.Life) bool {
		return l.ID != n.Self.ID && !slices.ContainsFunc(asked, func(a view.Life) bool { return a.ID == l.ID })
	})
}

// askVersions asks a peer which copies it has of what this node searches, then the best of all peers for its copy.
func (c *peer) askVersions(ctx context.Context) {
	if c.node.waiting.Load() == 0 || !c.node.Peers.Reaches(c.life) {
		return
	}
	unknown, requests := c.searched()
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if len(unknown) > 0 {
		versions, err := c.node.Peers.Versions(call, c.life, unknown)
		if err == nil && len(versions) == len(unknown) {
			c.noteVersions(unknown, versions)
		}
	}
	if len(requests) > 0 {
		if err := c.node.Peers.Ask(call, c.life, requests); err != nil {
			c.node.Logger.Debug("copies not asked for", "from", c.life.ID, "partitions", len(requests), "error", err)
		}
	}
}

// searched returns the partitions of which a peer is to say what copy it has, and those of which it has the best.
func (c *peer) searched() (unknown []uint32, requests []Request) {
	for x := range c.node.parts.each {
		switch {
		case !x.searches():
		case !slices.Contains(x.in.search.asked, c.life):
			unknown = append(unknown, x.p)
		case x.in.search.best == c.life && x.in.feed.from != c.life && c.node.haveAnswered(x.in.search.asked):
			requests = append(requests, Request{Partition: x.p, Term: x.replica.Claim.Term, Salvages: true})
		}
	}
	return unknown, requests
}

// haveAnswered reports whether all peers that are reached are among some lives, and those that were stopped with this node, unless they are late.
func (n *shared) haveAnswered(asked []view.Life) bool {
	if time.Now().Before(n.restartOver()) && n.lacksStopped(asked) {
		return false
	}
	for l := range *n.byLife.Load() {
		if !slices.Contains(asked, l) && n.Peers.Reaches(l) {
			return false
		}
	}
	return true
}

// noteVersions records which copies a peer has. The search is over if all have answered, and none has a later copy.
func (c *peer) noteVersions(partitions []uint32, versions []replica.Version) {
	for i, p := range partitions {
		x := &c.node.parts[p]
		x.mu.Lock()
		s := &x.in.search
		if x.searches() && !slices.Contains(s.asked, c.life) {
			s.asked, s.since = append(s.asked, c.life), time.Now()
			if versions[i].After(s.version) {
				s.best, s.version = c.life, versions[i]
			}
			if s.isDone = s.best == (view.Life{}) && c.node.haveAnswered(s.asked); s.isDone {
				x.setGate(x.replica.State)
			}
		}
		x.mu.Unlock()
	}
}

// Versions returns which copies this node has of partitions, the zero version for none.
func (n *Node) Versions(partitions []uint32) (versions []replica.Version) {
	for _, p := range partitions {
		var v replica.Version
		if int(p) < len(n.parts) {
			x := &n.parts[p]
			x.mu.Lock()
			v = x.replica.Version
			x.mu.Unlock()
		}
		versions = append(versions, v)
	}
	return versions
}
