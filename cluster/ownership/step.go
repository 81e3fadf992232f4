package ownership

import (
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
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

// noteCopied tells the replica what copy a node has that is fed. x.mu is held.
func (x *partition) noteCopied(d *feed) {
	if len(d.acknowledged) > 0 { // else there are no deltas to answer for
		x.step(replica.Event{Kind: replica.Copied, From: d.to, Version: d.version, Acknowledged: d.acknowledged}, nil)
	}
}

// keepUnused is how long a copy is kept that is of no use any more.
const keepUnused = 30 * time.Second

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
