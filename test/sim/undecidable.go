package sim

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/client"
)

// undecidable reports whether a check sent at some instant may reach no node that can decide it: nodes are
// divided, or two are gone, or one is, or is not reached, and the connections to another have just been
// reset, or one is and what is relayed past a cut may be late; or are while the check is under way.
func (p Plan) undecidable(at time.Duration) bool {
	if slices.ContainsFunc(p.divided(), func(s stretch) bool { return s.meets(at, at+client.DefaultTimeout) }) {
		return true
	}
	if p.withoutEtcd(at, at+client.DefaultTimeout) &&
		(p.isHalved(at) || slices.ContainsFunc(p.bereaved(), func(s stretch) bool { return s.meets(at, at+client.DefaultTimeout) })) {
		return true
	}
	if slices.ContainsFunc(p.losses(), func(l loss) bool {
		return l.to <= at+client.DefaultTimeout && at <= p.recovered(l.to) && (l.left || p.changing(at))
	}) {
		return true
	}
	gone := slices.ContainsFunc(p.Faults, func(f Fault) bool { return p.vanishes(f) && f.At <= at && at <= p.recovered(f.At) })
	if gone && slices.ContainsFunc(p.slowlyRelayed(), func(s stretch) bool { return s.meets(at, at+client.DefaultTimeout) }) {
		return true
	}
	reset := slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == Reset && f.At-dialed <= at && at <= f.At+dialed })
	return reset && (gone || slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == OneWay && f.At <= at && at <= f.At+f.For+mended }))
}

// isHalved reports whether half of the nodes may be gone when a check is sent at some instant: the others are no majority.
func (p Plan) isHalved(at time.Duration) bool {
	left, gone := len(p.Start), make(map[string]bool)
	for _, f := range p.Faults {
		switch {
		case f.Kind == Drain && f.At <= at:
			left--
		case p.vanishes(f) && f.At <= at+client.DefaultTimeout && at <= p.recovered(f.At):
			gone[f.Node] = true
		}
	}
	return 2*len(gone) >= left
}

// changing reports whether a node was gone, or was started, so shortly before a check that is sent at some instant, or while that is under way, that nodes may not have
// found out yet which one grants in the place of others.
func (p Plan) changing(at time.Duration) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool {
		goes, comes := dies(f) || stops(f), f.Kind != Drain && (dies(f) || stops(f) || f.Kind == Join)
		found := stretch{f.At, p.gone(f) + bridged}
		started := stretch{f.At + f.For, p.back(f) - startFor + bridged} // it may wait for etcd
		if f.Kind == Flash {
			started.to += unlocked
		}
		return goes && found.meets(at, at+client.DefaultTimeout) || comes && started.meets(at, at+client.DefaultTimeout)
	})
}

// unanswerable reports whether it may be that no node answers in time a check sent at some instant: no node
// can decide it, which the node asked finds out when half of the client's time is over, and for the other
// half it may ask a node that is stalled, or dies just then. The same holds if the stalled node is the
// standby of one that is gone.
func (p Plan) unanswerable(at time.Duration) bool {
	until := at + client.DefaultTimeout
	for i, f := range p.Faults {
		stalled := f.Kind == Stall && f.At <= until && at <= f.At+f.For
		if !stalled && (!dies(f) || f.At < at || until < f.At) {
			continue
		}
		others := p
		others.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
		gone := func(g Fault) bool {
			return p.vanishes(g) && g.Node != f.Node && g.At <= until && at <= p.recovered(g.At)
		}
		if others.undecidable(at) || stalled && slices.ContainsFunc(p.Faults, gone) {
			return true
		}
	}
	return false
}
