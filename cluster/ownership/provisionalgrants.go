package ownership

import (
	"cmp"
	"context"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// maxPosts bounds the partitions of which one call has deltas.
const maxPosts = 64

// post tells a peer what this node has granted in partitions that the peer owns, if it is reached. It tells the standby as well, if the owner is not: a former
// standby may have granted just before another one was named.
func (c *sender) post(ctx context.Context) {
	if !c.node.hasGranted() || !c.node.Peers.Reaches(c.life) {
		return
	}
	for from := 0; from < len(c.node.parts); {
		var posts []Post
		posts, from = c.node.postsFor(c.life, from, true)
		if len(posts) == 0 {
			return
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		answers, err := c.node.Peers.Post(call, c.life, posts)
		cancel()
		for i, m := range posts {
			a := Posting{Refused: true}
			if err == nil && i < len(answers) {
				a = answers[i]
			}
			c.node.parts[m.Partition].posted(c.life, a)
		}
		if err != nil {
			return
		}
	}
}

// hasGranted reports whether the node has granted from copies what others may not have. It takes no lock: what takeGrants moves from the one to the other is
// counted in the other first.
func (n *shared) hasGranted() bool { return n.Shard.HasAnyGrants() || n.batches.Load() > 0 }

// postsFor returns the deltas that an owner is not known to have, of maxPosts partitions from one on, and where to go on. Of those that it has
// and that may be lost with it, it returns empty ones. begins says that they are posted, and not heard. Others may be on their way to a former owner, which can
// hang: their numbers have all that get them count them once.
func (n *Node) postsFor(owner view.Life, from int, begins bool) (posts []Post, next int) {
	for ; from < len(n.parts) && len(posts) < maxPosts; from++ {
		x := &n.parts[from]
		x.mu.Lock()
		if after, ok := x.owes(owner, begins); ok {
			switch last := len(x.deltas.own.batches) - 1; {
			case !begins:
				x.takeGrants(maxHeardBatches)
			case last < 0 || x.deltas.own.batches[last].Number <= after: // else what may have been lost on its way is sent again, as it was
				x.takeGrants(maxBatches)
			}
			isOwner, added := x.replica.Claim.Owner == owner, uint64(0)
			if isOwner {
				added = x.deltas.own.added
			}
			if m := x.deltas.own.post(uint32(from), after, added, begins); m != nil && (len(m.Batches) > 0 || isOwner) {
				m.Grantor = x.replica.Grantor.Incarnation
				posts = append(posts, *m)
			}
		}
		x.mu.Unlock()
	}
	return posts, from
}

// owes reports whether a node is to have this one's deltas of a partition: the owner, and the standby if the owner is not reached, or if the standby asks, which
// may not reach it. after is the last that it is known to have. x.mu is held.
func (x *partition) owes(to view.Life, begins bool) (after uint64, ok bool) {
	switch r := &x.replica; {
	case r.State >= replica.Waiting:
		return 0, false
	case r.Claim.Owner == to:
		return max(x.deltas.own.added, x.deltas.own.shared.of(to)), true
	case r.Claim.Standby == to && !(begins && x.node.Peers.Reaches(r.Claim.Owner)), !begins && x.node.mayStandIn(to, x.p, &r.Claim):
		return x.deltas.own.shared.of(to), true
	}
	return 0, false
}

// mayStandIn reports whether a node may stand in for others in a partition, for which it has asked: else it grants what this one has granted.
func (n *shared) mayStandIn(l view.Life, p uint32, c *replica.Claim) bool {
	standIns := n.StandIns()
	return standIns != nil && standIns[p] == l || l.ID == c.Owner.ID || l.ID == c.Standby.ID
}

// takeGrants makes deltas of what the shard has granted from its copy, until there are most. x.mu is held.
func (x *partition) takeGrants(most int) {
	for len(x.deltas.own.batches) < most {
		x.node.batches.Add(1)
		grants := x.node.Shard.TakeGrants(x.p, batchSize)
		if len(grants) == 0 {
			x.node.batches.Add(-1)
			return
		}
		r, number := x.replica.GrantedFromCopy()
		x.replica = r
		x.deltas.own.batches = append(x.deltas.own.batches, Batch{number, grants})
	}
}

// posted records what an owner has answered.
func (x *partition) posted(owner view.Life, a Posting) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case a.Refused:
		return
	case a.Shared, x.replica.Claim.Standby == owner: // it may be the owner, and not know that yet
		x.deltas.own.shared = mark{owner, max(x.deltas.own.shared.of(owner), a.Added)}
		return
	case x.replica.Claim.Owner != owner:
		return
	}
	if c := x.node.peer(owner); c != nil && x.deltas.own.shared.of(owner) > a.Added {
		fill(c.due) // it has lost them, and is sent them again
	}
	x.deltas.own.shared = mark{}
	x.deltas.own.added = max(x.deltas.own.added, a.Added)
	x.step(replica.Event{Kind: replica.Answered, From: owner, Number: a.Safe}, nil)
}

// Add adds deltas that another node has posted. There is one answer for each post.
func (n *Node) Add(from view.Life, posts []Post) []Posting {
	answers := make([]Posting, 0, len(posts))
	for i := range posts {
		a, p := Posting{Refused: true}, posts[i].Partition
		if int(p) < len(n.parts) && posts[i].isValid(len(n.parts)) {
			grantor := view.Life{ID: from.ID, Incarnation: cmp.Or(posts[i].Grantor, from.Incarnation)}
			a = n.parts[p].add(grantor, posts[i].Batches)
		}
		answers = append(answers, a)
	}
	return answers
}

func (x *partition) add(from view.Life, batches []Batch) Posting {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := &x.replica
	decides := r.State == replica.Deciding && x.node.isValid()
	if !r.IsGrantable() && !decides && (r.State != replica.Deciding || !x.node.isOver.Load()) {
		return Posting{Refused: true}
	}
	if last := len(batches) - 1; last >= 0 {
		x.step(replica.Event{Kind: replica.Posted, From: from, Deltas: replica.Deltas{First: batches[0].Number, Next: batches[last].Number + 1}}, batches)
	}
	if r.State == replica.Waiting { // they are added for as long as it grants from its copy
		return Posting{Refused: true}
	}
	return Posting{Added: max(r.Acknowledged.Of(from), r.Shared.Of(from)), Safe: x.deltas.safe.Of(from), Shared: !decides}
}

// isValid reports whether the numbers of a post ascend by one, and all its grants are of its partition.
func (m *Post) isValid(partitions int) bool {
	for i, b := range m.Batches {
		if b.Number == 0 || i > 0 && b.Number != m.Batches[i-1].Number+1 {
			return false
		}
		for j := range b.Grants {
			if b.Grants[j].Key.Partition(uint32(partitions)) != m.Partition {
				return false
			}
		}
	}
	return true
}

// Hear returns all deltas of partitions that a node owns, which is about to decide again.
func (n *Node) Hear(owner view.Life) (posts []Post) {
	if !n.hasGranted() {
		return nil
	}
	for from := 0; from < len(n.parts); {
		var some []Post
		some, from = n.postsFor(owner, from, false)
		posts = append(posts, some...)
	}
	return posts
}
