package ownership

import (
	"slices"
	"sync"
	"sync/atomic"
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

// shared is what all partitions of a node use.
type shared struct {
	Config
	decisionLease
	peerTable
	session atomic.Uint64 // of the last feed that was begun
	batches atomic.Int64  // own deltas in all partitions
	waiting atomic.Int64  // partitions whose replica is Waiting
	unasked chan struct{} // full when a partition is unasked; has room for one
	// expected are the members at the time of the snapshot that this node has restored. It is set before Adopt and Run.
	expected []view.Life
	// joined is when this node has first adopted a view of which it is a member, in Unix nanoseconds.
	joined atomic.Int64
	// restored is the highest term of what that snapshot has. It is set before Adopt and Run.
	restored uint64
	// reportDue says that what a replica reports has changed since Node.report was made. It is set after the change.
	reportDue atomic.Bool
}

// partition is a node's replica of one partition, with what drives it. mu is held over locks of the shard, and never over a call. It guards
// all that follows it, except out.standby.
type partition struct {
	node    *shared
	p       uint32 // its number: it is node.parts[p], for the Node that node is a part of
	mu      sync.Mutex
	replica replica.Replica // replica.Self is the node's life
	out     sending
	in      receiving
	deltas  deltas
	place   place
}

// receiving is what a node gets of one partition from others.
type receiving struct {
	feed   intake  // of the node that has fed it last
	search salvage // search.since is zero unless replica.State == Waiting
	given  given   // zero except while a final state is taken over
}

// deltas are the grants from copies of one partition, as far as nodes do not have them yet.
type deltas struct {
	own ownDeltas
	// shared are the deltas of other nodes that are over the copy: those of replica.Shared. Records of the owner are merged with them.
	shared []sharedBatch
	safe   replica.Acknowledged // those of other nodes that the standby has
	asked  asked                // notGrantable unless replica.IsGrantable
	heard  uint64               // the term for which the members were asked last, as this node is the owner
}

// partitions are all partitions of a node, by number.
type partitions []partition

// each yields all partitions, each with its lock held.
func (ps partitions) each(yield func(*partition) bool) {
	for p := range ps {
		x := &ps[p]
		x.mu.Lock()
		goesOn := yield(x)
		x.mu.Unlock()
		if !goesOn {
			return
		}
	}
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

// of returns the last delta that a node is known to have, 0 for none.
func (m mark) of(l view.Life) uint64 {
	if m.at != l {
		return 0
	}
	return m.last
}

// ownDeltas are a node's own deltas of one partition.
type ownDeltas struct {
	batches []Batch // from replica.Deltas.First on, or later; len <= maxHeardBatches, and what a snapshot had
	added   uint64  // the last that the owner of the newest view is known to have
	shared  mark    // the last that a node is known to have that does not decide, in its copy
	idle    time.Time
}

// sharedBatch is a Batch of another node. There are as many of a node as that may have itself.
type sharedBatch struct {
	from view.Life
	Batch
}

// asked says whether the members were asked for what they have granted, before this node grants from a copy: another standby may have been named while the
// owner was not reached, and have granted.
type asked uint8

const (
	notGrantable asked = iota // the copy is none to grant from
	unasked
	asking
	wasAsked
)

// step hands an event to the replica and carries out its actions. added are the grants of Posted.
func (x *partition) step(e replica.Event, added []Batch) { x.stepAs(e, added, x.node.isValid()) }

// stepAs does so where the caller has seen whether the decision lease is valid. x.mu has been held since.
func (x *partition) stepAs(e replica.Event, added []Batch, valid bool) {
	was, wasGrantable := x.replica.State, x.replica.IsGrantable()
	wasSettled, wasComplete := x.replica.Report()
	r, actions := x.replica.Step(e, valid)
	x.replica = r
	for i := range actions {
		x.act(&actions[i], added)
	}
	x.trimShared(func(b *sharedBatch) bool { return b.Number > r.Shared.Of(b.from) })
	if settled, complete := r.Report(); settled != wasSettled || complete != wasComplete {
		x.node.reportDue.Store(true)
	}
	if (e.Kind == replica.Feed || e.Kind == replica.Copied) && r.State == was && r.IsGrantable() == wasGrantable {
		return // as most are: what follows depends on nothing else that they change
	}
	x.setGate(was)
	x.assignFeeds()
	switch {
	case was == r.State:
	case r.State == replica.Waiting:
		x.node.waiting.Add(1)
	case was == replica.Waiting:
		x.node.waiting.Add(-1)
		noteArrival(x.node.Observer, &x.replica, e.Kind)
	}
}

// noteArrival tells how this node has got a partition, in which it has waited until an event of that kind.
func noteArrival(o Observer, r *replica.Replica, kind replica.EventKind) {
	switch {
	case r.State != replica.Deciding || len(r.Claim.Predecessors) == 0:
	case kind == replica.Ended:
		o.Moved(Continued)
	default:
		o.Moved(Received)
	}
}

// report returns what the node reports of a partition.
func (ps partitions) report(p int) (settled, complete bool) {
	x := &ps[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.replica.Report()
}

// act carries out one action. Records are in the counters before the event that has them.
func (x *partition) act(a *replica.Action, added []Batch) {
	switch a.Kind {
	case replica.AddDeltas:
		for _, b := range added { // its own are in its counters
			if a.To != x.replica.Grantor && a.Deltas.First <= b.Number && b.Number < a.Deltas.Next {
				if x.replica.State == replica.Deciding {
					x.node.Shard.AddGrants(b.Grants)
				} else {
					x.node.Shard.AddGrantsToCopy(x.p, b.Grants)
					x.deltas.shared = append(x.deltas.shared, sharedBatch{a.To, b})
					x.node.Shard.Underway(x.p, x.deltas.grants())
					x.in.feed.apart = true
				}
				x.node.Observer.Added(len(b.Grants))
			}
		}
	case replica.TrimDeltas:
		x.trimBatches(a.Number)
	case replica.SendFinal:
		x.out.final = Request{Partition: x.p, Term: a.Term}
	case replica.SendAnswer:
		x.deltas.safe = x.deltas.safe.With(a.To, a.Number)
	case replica.Discard:
		x.node.Shard.Clear(x.p)
		x.in.feed = intake{}
	case replica.Install: // the records are laid down
	}
}

// setGate has the shard decide, or grant from its copy, as the state of the replica allows. was is the state before.
func (x *partition) setGate(was replica.State) {
	r := &x.replica
	switch {
	case r.State == replica.Deciding && (was != replica.Deciding || x.node.Shard.IsSealed(x.p)):
		x.node.Observer.Opened(x.p)
		x.in.feed.partial, x.in.feed.apart = false, false // what it has is what counts now
		x.node.Shard.Unseal(x.p)
		x.node.Shard.Withhold(x.p, true) // without the decision lease it decides nothing
		return
	case r.State == replica.Deciding:
		x.node.Shard.Withhold(x.p, !x.place.standsIn)
		return
	case was == replica.Deciding:
		x.node.Shard.Seal(x.p)
	}
	switch {
	case !r.IsGrantable():
		x.deltas.asked = notGrantable
	case x.deltas.asked == notGrantable:
		x.deltas.asked = unasked
		fill(x.node.unasked)
	}
	x.node.Shard.Withhold(x.p, !x.isGrantable())
}

// isGrantable reports whether this node may grant from its copy while the owner, or a predecessor, is not reached. x.mu is held.
func (x *partition) isGrantable() bool {
	if x.replica.State == replica.Deciding {
		return x.place.standsIn
	}
	return x.deltas.asked == wasAsked && x.replica.IsGrantable() && (x.replica.Version.Term > 0 || !x.salvages())
}

// adopt takes over what a newer view says. x.mu is held.
func (x *partition) adopt(v *view.View, plan view.Plan) {
	claim := replica.Claim{Number: v.Number, Partition: v.Partitions[x.p]}
	if x.replica.State == replica.Deciding && (claim.Owner != x.replica.Self || claim.Term != x.replica.Version.Term) {
		x.node.Shard.Seal(x.p) // first: nothing is granted after what is sent as the final state
		x.replica = x.replica.Granted()
		switch {
		case claim.Owner == x.replica.Self:
		case v.IsMember(x.replica.Self):
			x.node.Observer.Moved(HandedOver)
		default:
			x.node.Observer.Moved(Displaced)
		}
	}
	if claim.Term != x.replica.Claim.Term {
		x.deltas.safe, x.deltas.own.added, x.out.final = nil, 0, Request{}
	}
	x.place = placeOf(v, plan, int(x.p))
	if x.replica.Deltas.Count() > 0 || x.node.Shard.HasGrants(x.p) {
		for _, l := range []view.Life{claim.Owner, claim.Standby} { // the owner may be another one, and the standby may lack them, if the owner has died
			if c := x.node.peer(l); c != nil {
				fill(c.due)
			}
		}
	}
	had := x.replica.Version.Term > 0 && !x.in.search.restored
	x.step(replica.Event{Kind: replica.Adopt, Claim: claim}, nil)
	if x.mustHear() {
		fill(x.node.unasked)
	}
	x.beginSalvage(had)
	for f := range x.out.feeds {
		x.noteCopied(&x.out.feeds[f]) // a learner may be the standby now
	}
}

func placeOf(v *view.View, plan view.Plan, p int) (at place) {
	at.learner = v.Learner(p, plan[p])
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
func (x *partition) trimBatches(below uint64) {
	had := len(x.deltas.own.batches)
	x.deltas.own.batches = slices.DeleteFunc(x.deltas.own.batches, func(b Batch) bool { return b.Number < below })
	if len(x.deltas.own.batches) == had {
		return
	}
	x.node.Shard.Underway(x.p, x.deltas.grants())
	x.node.batches.Add(int64(len(x.deltas.own.batches) - had))
}

// trimShared forgets deltas of other nodes: the copy has them, or counts without them.
func (x *partition) trimShared(known func(b *sharedBatch) bool) {
	had := len(x.deltas.shared)
	x.deltas.shared = slices.DeleteFunc(x.deltas.shared, func(b sharedBatch) bool { return known(&b) })
	if len(x.deltas.shared) < had {
		x.node.Shard.Underway(x.p, x.deltas.grants())
	}
}

// grants are those of all deltas: records of the owner are merged with them, as it may not have them.
func (d *deltas) grants() (all []shard.Grant) {
	for _, b := range d.own.batches {
		all = append(all, b.Grants...)
	}
	for _, b := range d.shared {
		all = append(all, b.Grants...)
	}
	return all
}

// dropUnused gives up copies that have been of no use for long. What a node has from its snapshot may be the only copy until a view names this life.
func (ps partitions) dropUnused() {
	for x := range ps.each {
		switch may := x.node.joined.Load() > 0 && x.replica.MayDrop() && !x.node.Shard.HasGrants(x.p); {
		case !may:
			x.deltas.own.idle = time.Time{}
		case x.deltas.own.idle.IsZero():
			x.deltas.own.idle = time.Now()
		case time.Since(x.deltas.own.idle) >= keepUnused:
			x.deltas.own.idle = time.Time{}
			x.step(replica.Event{Kind: replica.Drop}, nil)
		}
	}
}

// keepUnused is how long a copy is kept that is of no use any more.
const keepUnused = 30 * time.Second
