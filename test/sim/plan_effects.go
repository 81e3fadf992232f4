package sim

import (
	"slices"
	"time"
)

// mended is how long it may take two nodes to find each other again after a cut.
const mended = 3 * time.Second

// dialed is how long it may take two nodes to connect again whose connections were reset, and how long a check may
// have been under way then.
const dialed = 100 * time.Millisecond

// spared is for how long a relay does not ask a member that was late.
const spared = 250 * time.Millisecond

// bridged is how long it may take until another node grants in the place of two that are gone.
const bridged = 1500 * time.Millisecond

// unlocked is how long it may take until a node that was killed and started again at once gets its directory.
const unlocked = 1500 * time.Millisecond

// noticed is how long it may take nodes to notice that etcd is back: an attempt lasts a second, and the next begins a second later.
const noticed = 2 * time.Second

// stretch is a length of time.
type stretch struct{ from, to time.Duration }

func (s stretch) meets(from, to time.Duration) bool { return s.from <= to && from <= s.to }

// within returns how much of s lies between two instants.
func (s stretch) within(from, to time.Duration) time.Duration {
	return max(min(s.to, to)-max(s.from, from), 0)
}

// dies reports whether a fault is that a node dies.
func dies(f Fault) bool {
	return f.Kind == Crash || f.Kind == Flash || slices.Contains(addresses, f.Kind)
}

// loss is of two nodes of which the second one is gone before others have taken over from the first.
type loss struct {
	from, to, over time.Duration // the first fault, the second one, and by when one node decides what they had
	apart          bool          // both nodes may be back before others have taken over
	left           bool          // one of them was told to stop, and has said farewell
}

// losses are those of a plan. A node that stops while etcd is unreachable is gone as well: it leaves its
// partitions to its standbys, unknown to the other nodes.
func (p Plan) losses() (all []loss) {
	var before []Fault
	for _, f := range p.Faults {
		if !p.vanishes(f) {
			continue
		}
		taken := p.recovered(f.At)
		gone := func(first Fault) bool { return f.Node != first.Node && f.At <= p.recovered(first.At) }
		returned := func(first Fault) bool { return gone(first) && returnsBy(first, taken) }
		if i := slices.IndexFunc(before, gone); i >= 0 {
			first := before[i]
			over := max(p.gone(first), p.gone(f))
			if taken > f.At+recovery {
				over = taken // without etcd, nodes that begin from nothing decide apart until then
			}
			all = append(all, loss{first.At, f.At, over, returnsBy(f, taken) && slices.ContainsFunc(before, returned), stops(first) || stops(f)})
		}
		before = append(before, f)
	}
	return all
}

// returnsBy reports whether a node that a fault has end may be started again by an instant.
func returnsBy(f Fault, at time.Duration) bool {
	return f.Kind == Flash || f.Kind == Restart || (f.Kind == Crash || f.Kind == Foreign) && f.At+f.For <= at
}

// gone is when a node is gone by that a fault has end: what it is asked while it stops it decides. It takes longer to hand over if another one dies meanwhile, or a
// cut keeps the others from fetching. It notices late that it cannot because etcd has become unreachable.
func (p Plan) gone(f Fault) time.Duration {
	if !stops(f) {
		return f.At
	}
	at := f.At + startFor
	for _, e := range p.Faults {
		switch {
		case e.At > at:
		case slices.Contains(ofEtcd, e.Kind) && f.At <= e.At:
			at = max(at, e.At+startFor+noticed)
		case e.Kind == OneWay && f.At <= e.At+e.For+mended:
			at = max(at, e.At+e.For+mended+startFor)
		case dies(e) && f.At <= e.At+recovery:
			at = max(at, e.At+recovery+startFor)
		}
	}
	return at
}

// vanishes reports whether a fault is that a node goes, and no view says so for a while.
func (p Plan) vanishes(f Fault) bool { return dies(f) || stops(f) && p.withoutEtcd(f.At, p.gone(f)) }

// stops reports whether a fault is that a node is told to stop.
func stops(f Fault) bool { return f.Kind == Drain || f.Kind == Restart }

// withoutEtcd reports whether etcd is unreachable within a stretch, or has only just come back.
func (p Plan) withoutEtcd(from, to time.Duration) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool {
		return slices.Contains(ofEtcd, f.Kind) && f.At <= to && from <= f.At+f.For+noticed
	})
}

// divided are the stretches in which nodes are divided, and what they have granted apart is not added up yet.
func (p Plan) divided() (all []stretch) {
	for _, f := range p.Faults {
		over := f.At + f.For + healing
		switch {
		case divides(f):
			all = append(all, stretch{f.At, over})
			if f.Kind == Exile {
				all = append(all, stretch{f.At + f.For, over}) // not mended: see above
			}
		case f.Kind == OneWay:
			if since, alone := p.unrelayed(f); alone {
				all = append(all, stretch{since, over})
			}
		}
	}
	return all
}

// divides reports whether a fault is that some nodes reach no other one for a while, or reach it too late.
func divides(f Fault) bool { return slices.Contains([]Kind{Split, Stall, Lag, Exile}, f.Kind) }

// isolates reports whether a division has a node alone on one side.
func (f Fault) isolates(id string) bool { return f.Node == id || slices.Equal(f.Group, []string{id}) }

// bereaved are the stretches of cuts between two nodes in which another is gone, or one of the two was and is back, and others have not taken over from it. A new
// owner that has no copy and does not reach the standby, which has it, decides from nothing; and while etcd is unreachable, who hears all but two members
// may not be a majority.
func (p Plan) bereaved() (all []stretch) {
	for _, cut := range p.Faults {
		for _, f := range p.Faults {
			over := cut.At + cut.For
			other := f.Node != cut.Node && f.Node != cut.Other || returnsBy(f, over)
			from, to := max(f.At, cut.At), min(p.recovered(f.At), over)
			if cut.Kind == OneWay && other && p.vanishes(f) && from < to {
				all = append(all, stretch{from, to + healing})
			}
		}
	}
	return all
}

// slowlyRelayed are the stretches of cuts between two nodes in which one of them has a slow link, too,
// which may be that to the relay: one frame waits for another then.
func (p Plan) slowlyRelayed() (all []stretch) {
	for _, cut := range p.Faults {
		for _, f := range p.Faults {
			ends := f.Node == cut.Node || f.Node == cut.Other || f.Other == cut.Node || f.Other == cut.Other
			from, to := max(f.At, cut.At), min(f.At+f.For, cut.At+cut.For+mended)
			if cut.Kind == OneWay && f.Kind == Slow && ends && from < to {
				all = append(all, stretch{from, to + spared})
			}
		}
	}
	return all
}

// unrelayed reports whether there is a time in a cut between two nodes in which there is no third one that relays, and since when.
func (p Plan) unrelayed(cut Fault) (since time.Duration, alone bool) {
	instants := []time.Duration{cut.At}
	for _, f := range p.Faults {
		if cut.At < f.At && f.At < cut.At+cut.For {
			instants = append(instants, f.At)
		}
	}
	for _, at := range instants {
		if !slices.ContainsFunc(p.nodes(), func(id string) bool {
			return id != cut.Node && id != cut.Other && p.serves(id, at) && !p.apart(id, cut, at)
		}) {
			return at, true
		}
	}
	return 0, false
}

// apart reports whether, at some instant of a cut between two others, a node may not have found one of them again after another cut.
func (p Plan) apart(id string, cut Fault, at time.Duration) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool {
		ends := []string{f.Node, f.Other}
		return f.Kind == OneWay && slices.Contains(ends, id) && (slices.Contains(ends, cut.Node) || slices.Contains(ends, cut.Other)) &&
			f.At <= at && at <= f.At+f.For+mended
	})
}

// nodes returns the ids of all nodes there ever are.
func (p Plan) nodes() []string {
	ids := slices.Clone(p.Start)
	for _, f := range p.Faults {
		switch f.Kind {
		case Join:
			ids = append(ids, f.Node)
		case Reused:
			ids = append(ids, f.Other)
		}
	}
	return ids
}

// serves reports whether a node is a member at some instant for certain, and has no fault of its own.
func (p Plan) serves(id string, at time.Duration) bool {
	there := slices.Contains(p.Start, id)
	for _, f := range p.Faults {
		if f.At > at || f.Node != id && f.Other != id {
			continue
		}
		switch f.Kind {
		case Join, Restart, Crash, Flash, Foreign:
			there = p.named(f) <= at
		case Reused:
			there = f.Other == id && p.named(f) <= at
		case Drain:
			there = false
		}
	}
	return there
}

// back is when a node that a fault has started, or has started again, is a member.
func (p Plan) back(f Fault) time.Duration {
	at := f.At + f.For
	if f.Kind == Restart {
		at = p.gone(f)
	}
	for _, e := range p.Faults { // without which it cannot start
		if slices.Contains(ofEtcd, e.Kind) && e.At <= at+startFor && at <= e.At+e.For {
			at = e.At + e.For
		}
	}
	return at + startFor
}

// named is when a view names a node that a fault has started, or has started again: the first member writes views, and no other one does while it is gone.
func (p Plan) named(f Fault) time.Duration {
	at := p.back(f)
	for _, e := range p.Faults {
		if e.Node == slices.Min(p.Start) && e.Node != f.Node && p.vanishes(e) && e.At <= at && at <= p.recovered(e.At) {
			at = p.recovered(e.At)
		}
	}
	return at
}

// recovered is when others have taken over from a node that died: not while etcd is unreachable.
func (p Plan) recovered(died time.Duration) time.Duration {
	at := died + recovery
	for _, f := range p.Faults {
		if slices.Contains(ofEtcd, f.Kind) && died <= f.At+f.For && f.At <= at {
			at = max(at, f.At+f.For+recovery)
		}
	}
	return at
}

// clocksApart is how far two clocks of a plan are apart at most.
func (p Plan) clocksApart() time.Duration {
	if len(p.Clocks) == 0 {
		return 0
	}
	var least, most time.Duration
	for _, by := range p.Clocks {
		least, most = min(least, by), max(most, by)
	}
	return most - least
}

// waived reports whether two nodes may decide in one partition at some instant: a majority has been gone for so long that the others go on
// without it. It is the only exception.
func (p Plan) waived(at time.Duration) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool {
		return f.Kind == Exile && f.For > waiving && f.At+waiving <= at && at <= f.At+f.For+healing
	})
}
