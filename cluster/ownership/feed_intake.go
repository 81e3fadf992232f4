package ownership

import (
	"slices"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// Take takes changes that another node has sent. There is one receipt for each.
func (n *Node) Take(from view.Life, changes []*Changes) []Receipt {
	return n.takeAll(from, changes, false)
}

// TakeAwaited does so with those of partitions that wait for the final state of that node, and takes no others: the sender is not known for certain.
func (n *Node) TakeAwaited(from view.Life, changes []*Changes) []Receipt {
	return n.takeAll(from, changes, true)
}

func (n *Node) takeAll(from view.Life, changes []*Changes, onlyAwaited bool) []Receipt {
	receipts := make([]Receipt, 0, len(changes))
	for _, m := range changes {
		receipt := Useless
		if int(m.Partition) < len(n.parts) {
			receipt = n.parts[m.Partition].take(from, m, onlyAwaited)
		}
		receipts = append(receipts, receipt)
	}
	return receipts
}

func (x *partition) take(from view.Life, m *Changes, onlyAwaited bool) Receipt {
	x.mu.Lock()
	defer x.mu.Unlock()
	if onlyAwaited && !x.replica.Lacks(from) {
		if m.FinalFor == 0 || m.FinalFor > x.replica.Claim.Term {
			return Later
		}
		return Useless
	}
	x.forgetLostViews(from, m)
	valid := x.node.isValid() // once: a final state that is taken, or said to be of no use, is not sent again, so it must be heard
	if receipt := mayTake(&x.replica, from, m, valid); receipt != Taken {
		if receipt == Useless && m.FinalFor > 0 { // it is heard all the same, as one of no copy: its records are not laid down
			x.stepAs(replica.Event{Kind: replica.Final, From: from, Term: m.FinalFor}, nil, valid)
		}
		return receipt
	}
	at := &x.in.feed
	if isNext, receipt := at.isNext(from, m, x.replica.Version); !isNext {
		return receipt
	}
	x.trimBatches(m.Acknowledged.Of(x.replica.Grantor) + 1) // they are among the records, or in what was laid down before
	x.trimShared(func(b *sharedBatch) bool { return b.Number <= m.Acknowledged.Of(b.from) })
	if err := x.node.Shard.Apply(x.p, m.Records); err != nil {
		x.node.Logger.Error("changes of another node refused", "partition", x.p, "from", from.ID, "error", err)
		return Useless
	}
	isAnew := m.Index == 1 && m.Base == replica.Version{}
	*at = intake{from, m.Session, m.Index, !m.Complete && (at.partial || len(m.Records) > 0), at.apart && !isAnew || len(x.deltas.shared) > 0}
	if !m.Complete {
		return Taken
	}
	x.noteGiven(from, m)
	x.takeCopy(from, m, valid)
	x.forgetGiven()
	if m.Number > 0 && x.replica.Complete == m.Number {
		return Fit
	}
	return Taken
}

// takeCopy tells the replica that all of a copy was laid down. x.mu is held.
func (x *partition) takeCopy(from view.Life, m *Changes, valid bool) {
	e := replica.Event{Kind: replica.Feed, From: from, Number: m.Number, Version: m.Version, Acknowledged: m.Acknowledged}
	switch {
	case m.FinalFor > 0 && !slices.Contains(x.replica.Claim.Predecessors, from):
		e.Kind, e.Number, e.Term = replica.Salvaged, 0, m.FinalFor
		x.in.search.isDone = true
	case m.FinalFor > 0:
		e.Kind, e.Number, e.Term = replica.Final, 0, m.FinalFor
	}
	x.stepAs(e, nil, valid)
	if x.replica.Version == m.Version {
		x.in.search.restored = false
	}
}

// mayTake says whether changes are of use to a replica. valid says whether the decision lease is valid.
func mayTake(r *replica.Replica, from view.Life, m *Changes, valid bool) Receipt {
	if m.FinalFor == 0 {
		if r.State == replica.Deciding || r.Version.After(m.Version) {
			return Useless
		}
		return Taken
	}
	switch {
	case m.FinalFor > r.Claim.Term, r.State == replica.Waiting && m.FinalFor == r.Claim.Term && !valid:
		return Later
	case r.State != replica.Waiting, m.FinalFor != r.Claim.Term, slices.Contains(r.Heard, from), !m.Version.After(r.Version):
		return Useless
	}
	return Taken
}

// noteGiven has the changes tracked that the standby lacks, once its final state is laid down and before anything else is counted. What this node
// has granted itself from its copy, or was told that others have, is not among them, and its predecessor may lack it: such a standby is fed everything.
// x.mu is held.
func (x *partition) noteGiven(from view.Life, m *Changes) {
	c := &x.replica.Claim
	isOnly := len(c.Predecessors) == 1 && slices.Contains(c.Predecessors, from)
	hasMore := x.in.feed.apart || len(x.deltas.own.batches) > 0
	if m.FinalFor == 0 || !m.ReadsBase || !isOnly || c.Standby != from || x.out.feeds[givenFollower].to != (view.Life{}) || hasMore {
		return
	}
	x.in.given = given{from, m.Version}
	if x.node.Shard.FollowChanges(x.p, givenFollower); x.node.Shard.HasGrants(x.p) {
		x.forgetGiven()
	}
}

// forgetGiven ends that changes are tracked, if no feed has begun from what was given. x.mu is held.
func (x *partition) forgetGiven() {
	if x.in.given == (given{}) {
		return
	}
	x.in.given = given{}
	if x.out.feeds[givenFollower].to == (view.Life{}) {
		x.node.Shard.Unfollow(x.p, givenFollower)
	}
}
