package ownership

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// askVersions asks a peer which copies it has of what this node searches, then the best of all peers for its copy.
func (c *sender) askVersions(ctx context.Context) {
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
func (c *sender) searched() (unknown []uint32, requests []Request) {
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
func (c *sender) noteVersions(partitions []uint32, versions []replica.Version) {
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
