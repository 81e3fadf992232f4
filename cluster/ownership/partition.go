package ownership

import (
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// Bounds of a partition's deltas. What is granted beyond them stays in the shard, which has a bound of its own.
const (
	maxBatches      = 16  // that the owner may not have yet
	maxHeardBatches = 32  // the same, if another node has asked for all
	batchSize       = 500 // grants of one
)

// partition is a node's replica of one partition, with what drives it. mu is held over locks of the shard, and never over a call.
type partition struct {
	mu      sync.Mutex
	replica replica.Replica
	feeds   [followers]feed // by follower of the shard
	intake  intake
	final   Request   // the final state that is due, to the owner of the newest view; Term 0 for none
	deltas  ownDeltas // this node's own
	others  othersDeltas
	place   place
	salvage salvage
}

// place is where the newest view and its plan want the partition.
type place struct {
	learner view.Life // whom the owner feeds apart from the standby; or the zero value
	target  view.Life // the node that is to become standby or owner next, once its copy is complete; or the zero value
	owner   bool      // whether that is the plan's owner
	// standsIn says that this node grants from what it has, as the lives that would decide have ended: see standIn.
	standsIn bool
}

// mark is the last delta that a node is known to have.
type mark struct {
	at   view.Life
	last uint64
}

// ownDeltas are a node's own deltas of one partition.
type ownDeltas struct {
	batches []Batch // from replica.Deltas.First on, or later; len <= maxHeardBatches, and what a snapshot had
	added   uint64  // the last that the owner of the newest view is known to have
	shared  mark    // the last that a standby of that view is known to have, apart from the owner
	busy    bool    // they are on their way to the owner
	idle    time.Time
}

// othersDeltas is what is known of the deltas of other nodes.
type othersDeltas struct {
	safe  replica.Acknowledged // those that the standby has
	asked asked
}

// asked says whether the members were asked for what they have granted, before this node grants from a copy: another standby may have been named while the
// owner was not reached, and have granted.
type asked uint8

const (
	notGrantable asked = iota // the copy is none to grant from
	unasked
	wasAsked
)

// step hands an event to the replica and carries out its actions. added are the grants of Posted.
func (n *Node) step(p uint32, e replica.Event, added []Batch) {
	x := &n.parts[p]
	was, wasGrantable := x.replica.State, x.replica.IsGrantable()
	wasSettled, wasComplete := x.replica.Report()
	r, actions := x.replica.Step(e, n.isValid())
	x.replica = r
	for i := range actions {
		n.act(p, &actions[i], added)
	}
	if settled, complete := r.Report(); settled != wasSettled || complete != wasComplete {
		n.reportDue.Store(true)
	}
	if (e.Kind == replica.Feed || e.Kind == replica.Copied) && r.State == was && r.IsGrantable() == wasGrantable {
		return // as most are: what follows depends on nothing else that they change
	}
	n.setGate(p, was)
	n.assignFeeds(p)
	switch {
	case was == r.State:
	case r.State == replica.Waiting:
		n.waiting.Add(1)
	case was == replica.Waiting:
		n.waiting.Add(-1)
		n.noteArrival(r, e.Kind)
	}
}

// noteArrival tells how this node has got a partition in which it has waited until an event of that kind.
func (n *Node) noteArrival(r replica.Replica, kind replica.EventKind) {
	switch {
	case r.State != replica.Deciding || len(r.Claim.Predecessors) == 0:
	case kind == replica.Ended:
		n.Observer.Moved(Continued)
	default:
		n.Observer.Moved(Received)
	}
}

// act carries out one action. Records are in the counters before the event that has them.
func (n *Node) act(p uint32, a *replica.Action, added []Batch) {
	x := &n.parts[p]
	switch a.Kind {
	case replica.AddDeltas:
		for _, b := range added { // its own are in its counters
			if a.To != x.replica.Self && a.Deltas.First <= b.Number && b.Number < a.Deltas.Next {
				if x.replica.State == replica.Deciding {
					n.Shard.AddGrants(b.Grants)
				} else {
					n.Shard.AddGrantsToCopy(p, b.Grants)
				}
				n.Observer.Added(len(b.Grants))
			}
		}
	case replica.TrimDeltas:
		n.trimBatches(p, a.Number)
	case replica.SendFinal:
		x.final = Request{Partition: p, Term: a.Term}
	case replica.SendAnswer:
		x.others.safe = x.others.safe.With(a.To, a.Number)
	case replica.Discard:
		n.Shard.Clear(p)
		x.intake = intake{}
	case replica.Install, replica.ReportSettled: // the records are laid down, and reports say what is settled
	}
}

// setGate has the shard decide, or grant from its copy, as the state of the replica allows. was is the state before.
func (n *Node) setGate(p uint32, was replica.State) {
	x := &n.parts[p]
	r := &x.replica
	switch {
	case r.State == replica.Deciding && (was != replica.Deciding || n.Shard.IsSealed(p)):
		n.Observer.Opened(p)
		n.Shard.Unseal(p)
		n.Shard.Withhold(p, true) // without the decision lease it decides nothing
		return
	case r.State == replica.Deciding:
		n.Shard.Withhold(p, !x.place.standsIn)
		return
	case was == replica.Deciding:
		n.Shard.Seal(p)
	}
	switch {
	case !r.IsGrantable():
		x.others.asked = notGrantable
	case x.others.asked == notGrantable:
		x.others.asked = unasked
		fill(n.unasked)
	}
	n.Shard.Withhold(p, !x.isGrantable())
}

// isGrantable reports whether this node may grant from its copy while the owner, or a predecessor, is not reached. x.mu is held.
func (x *partition) isGrantable() bool {
	return x.place.standsIn || x.others.asked == wasAsked && x.replica.IsGrantable()
}

// adopt takes over what a newer view says about a partition.
func (n *Node) adopt(p uint32, v *view.View, plan view.Plan) {
	x := &n.parts[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	claim := replica.Claim{Number: v.Number, Partition: v.Partitions[p]}
	if x.replica.State == replica.Deciding && (claim.Owner != x.replica.Self || claim.Term != x.replica.Version.Term) {
		n.Shard.Seal(p) // first: nothing is granted after what is sent as the final state
		x.replica = x.replica.Granted()
		switch {
		case claim.Owner == x.replica.Self:
		case v.IsMember(x.replica.Self):
			n.Observer.Moved(HandedOver)
		default:
			n.Observer.Moved(Displaced)
		}
	}
	if claim.Term != x.replica.Claim.Term {
		x.others.safe, x.deltas.added, x.final = nil, 0, Request{}
	}
	x.place = placeOf(v, plan, int(p))
	if c := n.peer(claim.Standby); c != nil && (x.replica.Deltas.Count() > 0 || n.Shard.HasGrants(p)) {
		fill(c.due) // it may lack them, if the owner has died
	}
	had := x.replica.Version.Term > 0 && !x.salvage.restored
	n.step(p, replica.Event{Kind: replica.Adopt, Claim: claim}, nil)
	n.beginSalvage(p, had)
	for f := range x.feeds {
		n.noteCopied(p, &x.feeds[f]) // a learner may be the standby now
	}
}

func placeOf(v *view.View, plan view.Plan, p int) (at place) {
	at.learner = v.Learner(p, plan)
	part := &v.Partitions[p]
	wanted := plan[p].Standby
	if at.owner = part.Owner.ID != plan[p].Owner; at.owner {
		wanted = plan[p].Owner
	}
	for _, l := range []view.Life{part.Standby, at.learner} {
		if l.ID == wanted && wanted != "" && (at.owner || l != part.Standby) {
			at.target = l
		}
	}
	return at
}

// trimBatches forgets own deltas below a number: the copy has them, or the owner and its standby.
func (n *Node) trimBatches(p uint32, below uint64) {
	x := &n.parts[p]
	had := len(x.deltas.batches)
	x.deltas.batches = slices.DeleteFunc(x.deltas.batches, func(b Batch) bool { return b.Number < below })
	if len(x.deltas.batches) == had {
		return
	}
	n.Shard.Underway(p, flatten(x.deltas.batches))
	n.batches.Add(int64(len(x.deltas.batches) - had))
}

func flatten(batches []Batch) (grants []shard.Grant) {
	for _, b := range batches {
		grants = append(grants, b.Grants...)
	}
	return grants
}
