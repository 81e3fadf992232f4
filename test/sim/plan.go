package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Times and sizes of plans.
const (
	minNodes, maxNodes = 3, 7

	settle    = 4 * time.Second       // from the start until the first fault
	longestOf = 6 * time.Second       // of a fault that lasts
	recovery  = 8 * time.Second       // from a death until others have taken over
	healing   = 5 * time.Second       // from the end of all faults until nothing shows them any more
	maxSlow   = 10 * time.Millisecond // there and back: a frame waits for the one before it, and twice that is below the time that a node waits for another
	minLag    = 30 * time.Millisecond // above it
	maxLag    = 500 * time.Millisecond
	startFor  = 3 * time.Second // what a node may take to start or to stop
	leftAlone = 2               // nodes that have no fault of their own, at least
)

// Plan is what happens in a run.
type Plan struct {
	Seed   uint64
	Start  []string // ids of the nodes that are there from the start
	Faults []Fault  // by At
	Calm   time.Duration
	Clocks map[string]time.Duration // how far the clocks of nodes are ahead of the right one, by id
	Leases bool                     // a client uses leases
	Hot    bool                     // one key is asked for far more often than the others
}

// End is when the load ends and the cluster must be whole.
func (p Plan) End() time.Duration { return p.Calm + healing }

// String lists all faults.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: nodes %s, calm at %v, clocks %v, leases %v, hot %v\n", p.Seed, strings.Join(p.Start, ","), p.Calm, p.Clocks, p.Leases, p.Hot)
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  %8.3fs %v\n", f.At.Seconds(), f)
	}
	return b.String()
}

// Draw draws a plan, of the kinds given, or else of kinds that it draws as well. A seed
// always gives the same.
func Draw(seed uint64, kinds ...Kind) Plan {
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, 0)), busy: make(map[string]time.Duration), slow: make(map[[2]string]time.Duration)}
	d.plan = Plan{Seed: seed, Calm: settle + d.between(12*time.Second, 24*time.Second), Leases: d.IntN(2) == 0, Hot: d.IntN(6) == 0}
	for i := range minNodes + d.IntN(3) {
		d.plan.Start = append(d.plan.Start, name(i))
	}
	d.alive = slices.Clone(d.plan.Start)
	d.names = len(d.alive)
	d.mourning, d.lastDeath = d.IntN(4) == 0, -recovery
	drawn := len(kinds) == 0
	if drawn {
		kinds = slices.Clone(announced)
		for _, more := range [][]Kind{ofEtcd, deaths, divisions} {
			if d.IntN(2) == 0 {
				kinds = append(kinds, more...)
			}
		}
	}
	for at := settle; at < d.plan.Calm; at += d.between(100*time.Millisecond, 3*time.Second) {
		if f, possible := d.fault(kinds[d.IntN(len(kinds))], at); possible {
			d.plan.Faults = append(d.plan.Faults, f)
		}
	}
	if drawn {
		d.later(rand.New(rand.NewPCG(seed, 1)))
		d.latest(rand.New(rand.NewPCG(seed, 2)))
	}
	return d.plan
}

func name(i int) string { return string(rune('a' + i%26)) }

// drawer draws a plan; it keeps what is known of the nodes at the time.
type drawer struct {
	*rand.Rand
	plan    Plan
	alive   []string                    // that run, or are about to
	names   int                         // that were given
	busy    map[string]time.Duration    // until when a node has its fault
	slow    map[[2]string]time.Duration // until when the way between two nodes, sorted, is slow
	divided time.Duration               // until when the network is divided
	etcd    time.Duration               // until when etcd has its fault

	lastDeath time.Duration
	mourning  bool // nodes may die before others have recovered from the last death
}

func (d *drawer) between(least, most time.Duration) time.Duration {
	return (least + time.Duration(d.Int64N(int64(most-least)))).Round(time.Millisecond)
}

// idle returns the nodes that run and have no fault.
func (d *drawer) idle(at time.Duration) (ids []string) {
	for _, id := range d.alive {
		if d.busy[id] <= at {
			ids = append(ids, id)
		}
	}
	return ids
}

// pick draws one of ids, "" if there is none.
func (d *drawer) pick(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[d.IntN(len(ids))]
}

// fault draws a fault of a kind, if one is possible at that time.
func (d *drawer) fault(kind Kind, at time.Duration) (Fault, bool) {
	f := Fault{Kind: kind, At: at}
	lasting := d.between(500*time.Millisecond, longestOf)
	switch kind {
	case Join:
		return d.join(f)
	case Slow, Reset, OneWay:
		return d.pair(f, min(lasting, d.plan.Calm-at))
	case Split:
		return d.split(f, lasting)
	case EtcdStop, EtcdHang, EtcdLost:
		return d.etcdFault(f, lasting)
	}
	idle := d.idle(at)
	if len(idle) <= leftAlone {
		return f, false
	}
	f.Node = d.pick(idle)
	// A node does not come back without etcd.
	back := max(at, d.etcd) + startFor
	switch kind {
	case Drain:
		if len(d.alive) == minNodes {
			return f, false
		}
		d.alive = slices.DeleteFunc(d.alive, func(id string) bool { return id == f.Node })
		return f, true
	case Restart:
		d.busy[f.Node] = back + startFor
		return f, at+startFor < d.plan.Calm
	case Flash, Crash:
		if at < d.lastDeath+recovery && !d.mourning {
			return f, false
		}
		d.lastDeath, d.busy[f.Node] = at, back
		if kind == Crash {
			f.For = lasting
			d.busy[f.Node] = max(back, at+lasting+startFor)
		}
	case EtcdCut:
		f.For = lasting
		d.busy[f.Node] = at + lasting
	case Stall, Lag:
		f.For = lasting
		if kind == Lag {
			f.Delay = d.between(minLag, maxLag)
		}
		if !d.divide(f) {
			return f, false
		}
		d.busy[f.Node] = at + lasting
	}
	return f, at+f.For+recovery < d.plan.Calm
}

func (d *drawer) join(f Fault) (Fault, bool) {
	if len(d.alive) == maxNodes {
		return f, false
	}
	f.Node = name(d.names)
	d.names++
	d.alive = append(d.alive, f.Node)
	d.busy[f.Node] = max(f.At, d.etcd) + startFor
	return f, true
}

// pair draws a fault of the network between two nodes.
func (d *drawer) pair(f Fault, lasting time.Duration) (Fault, bool) {
	idle := d.idle(f.At)
	f.Node = d.pick(idle)
	f.Other = d.pick(slices.DeleteFunc(idle, func(id string) bool { return id == f.Node }))
	if f.Kind != Reset {
		f.For = lasting
	}
	if f.Kind == Slow {
		f.Delay = d.between(time.Millisecond, maxSlow)
		ends := [2]string{min(f.Node, f.Other), max(f.Node, f.Other)}
		if d.slow[ends] > f.At {
			return f, false
		}
		d.slow[ends] = f.At + f.For
	}
	return f, f.Other != "" && (f.Kind != OneWay || d.divide(f))
}

// split draws a group of less than half of the nodes.
func (d *drawer) split(f Fault, lasting time.Duration) (Fault, bool) {
	f.For, f.NoEtcd = min(lasting, d.plan.Calm-f.At), d.IntN(2) == 0
	ids := slices.Clone(d.alive)
	d.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	f.Group = ids[:1+d.IntN((len(ids)-1)/2)]
	slices.Sort(f.Group)
	return f, d.divide(f) && (!f.NoEtcd || f.At+f.For+recovery < d.plan.Calm)
}

// divide reserves the network for a division, of which there is one at a time.
func (d *drawer) divide(f Fault) bool {
	if d.divided > f.At {
		return false
	}
	d.divided = f.At + f.For
	return true
}

// etcdFault draws a fault of etcd, of which there is one at a time.
func (d *drawer) etcdFault(f Fault, lasting time.Duration) (Fault, bool) {
	f.For = lasting
	if d.etcd > f.At || f.At+f.For+recovery >= d.plan.Calm {
		return f, false
	}
	d.etcd = f.At + f.For
	for _, id := range d.alive {
		if d.busy[id] > f.At { // it may be about to start
			d.busy[id] = max(d.busy[id], d.etcd+startFor)
		}
	}
	return f, true
}
