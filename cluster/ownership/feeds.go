package ownership

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// assignFeeds has those fed that are to have copies: the standby and a learner by the owner, or the owner by a predecessor. x.mu is held.
func (x *partition) assignFeeds() {
	var to [followers]view.Life
	switch {
	case x.replica.State == replica.Deciding:
		to[0], to[1] = x.replica.Claim.Standby, x.place.learner
	case x.out.final.Term > 0 && x.out.final.Term == x.replica.Claim.Term:
		to[0] = x.replica.Claim.Owner
	}
	for f := range x.out.feeds {
		if d := &x.out.feeds[f]; d.to != (view.Life{}) && (!slices.Contains(to[:], d.to) || x.node.peer(d.to) == nil) {
			x.endFeed(shard.Follower(f))
		}
	}
	for _, l := range to {
		if c := x.node.peer(l); c != nil && !slices.ContainsFunc(x.out.feeds[:], func(d feed) bool { return d.to == l }) {
			f := slices.IndexFunc(x.out.feeds[:], func(d feed) bool { return d.to == view.Life{} })
			x.beginFeed(shard.Follower(f), l)
			c.setFed(x.p, true)
		}
	}
	for f := range x.out.feeds {
		x.tuneFeed(shard.Follower(f))
	}
	var standby, learner *peer
	if x.replica.State == replica.Deciding {
		standby, learner = x.node.peer(x.replica.Claim.Standby), x.node.peer(x.place.learner)
	}
	x.out.learner.Store(learner)
	if x.out.standby.Swap(standby) != standby {
		x.node.Observer.Followed(x.p, standby.lifeOr())
	}
}

// tuneFeed has a feed be what its receiver needs it for. x.mu is held.
func (x *partition) tuneFeed(f shard.Follower) {
	d := &x.out.feeds[f]
	if d.to == (view.Life{}) {
		return
	}
	isFinal := x.replica.State != replica.Deciding
	brief := isFinal || d.to == x.place.target && x.place.owner
	if isFinal && d.finalFor != x.out.final.Term {
		if d.brief.IsZero() || time.Since(d.brief) < shard.Brief {
			x.beginFeed(f, d.to) // it lacks counters that are short-lived
			d = &x.out.feeds[f]
		}
		d.finalFor = x.out.final.Term
		if c := x.node.peer(d.to); c != nil {
			c.noteFinal()
			fill(c.soon)
		}
	}
	x.node.Shard.SetWants(x.p, f, shard.Wants{Brief: brief, Urgent: !isFinal})
	switch {
	case !brief:
		d.brief = time.Time{}
	case d.brief.IsZero():
		d.brief = time.Now()
	}
}

// beginFeed begins to feed a node, with everything, unless it has given the final state just now. x.mu is held.
func (x *partition) beginFeed(f shard.Follower, to view.Life) {
	x.out.feeds[f] = feed{to: to, progress: progress{session: x.node.session.Add(1)}}
	if x.in.given.isOf(f, to) {
		x.out.feeds[f].base = x.in.given.version
		x.in.given = given{}
		return
	}
	x.node.Shard.Follow(x.p, f)
}

// endFeed ends what a node is fed. x.mu is held.
func (x *partition) endFeed(f shard.Follower) {
	d := &x.out.feeds[f]
	if c := x.node.peer(d.to); c != nil {
		c.setFed(x.p, false)
	}
	x.node.Shard.Unfollow(x.p, f)
	*d = feed{}
}

// restartFeed feeds a node everything again. x.mu is held.
func (x *partition) restartFeed(f shard.Follower) {
	d := x.out.feeds[f]
	x.beginFeed(f, d.to)
	x.out.feeds[f].finalFor, x.out.feeds[f].brief = d.finalFor, d.brief
	x.node.Shard.SetWants(x.p, f, shard.Wants{Brief: !d.brief.IsZero(), Urgent: x.replica.State == replica.Deciding})
}

// Hurry has the standby of a partition fed at once, and the learner, which is the standby as soon as a view says so. Checks call it,
// so it takes no lock.
func (n *Node) Hurry(p uint32) {
	out := &n.parts[p].out
	if c := out.standby.Load(); c != nil {
		fill(c.soon)
	}
	if c := out.learner.Load(); c != nil {
		fill(c.soon)
	}
}
