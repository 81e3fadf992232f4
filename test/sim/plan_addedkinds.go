package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// What plans came to have later is drawn by itself and added to what there was before: so the seeds that have ever failed
// still play what failed.

// Times and sizes of that.
const (
	mostApart  = 300 * time.Millisecond // how far a clock is from the right one at most; two of them by twice that
	farAhead   = time.Hour
	exileLeast = 9 * time.Second // longer than a lease and all that follows its end
	exileMost  = 16 * time.Second
	exileLong  = 45 * time.Second // longer than the others wait for a majority
	waiving    = 30 * time.Second // as long as they wait for it

	occupiedLeast = 6 * time.Second // an address by a node of another cluster: longer than a lease
	occupiedMost  = 12 * time.Second
	vacantMost    = 3 * time.Second // an address until a new node has it
)

// later adds clocks that differ, nodes whose clocks are far ahead, and a majority that loses etcd, each to a quarter of the plans.
func (d *drawer) later(r *rand.Rand) {
	d.Rand = r
	clocks, ahead, exile := d.IntN(4) == 0, d.IntN(4) == 0, d.IntN(4) == 0
	if clocks {
		d.plan.Clocks = make(map[string]time.Duration)
		for i := range 26 {
			d.plan.Clocks[name(i)] = d.between(-mostApart, mostApart)
		}
	}
	if ahead {
		f := Fault{Kind: Ahead, At: d.between(settle, d.plan.Calm-time.Second), Node: "x", Delay: farAhead}
		f.For = min(d.between(time.Second, longestOf), d.plan.Calm-f.At)
		d.add(f)
	}
	if exile {
		d.exile()
	}
}

// exile adds, once all other faults are over, that a majority is divided from etcd and all others. One of the others may be restarted then.
func (d *drawer) exile() {
	ids := slices.Sorted(slices.Values(d.alive))
	d.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	n := len(ids)/2 + 1
	n += d.IntN(len(ids) - n)
	f := Fault{Kind: Exile, At: d.plan.Calm + healing, For: d.between(exileLeast, exileMost), Group: slices.Sorted(slices.Values(ids[:n]))}
	if d.IntN(8) == 0 {
		f.For = exileLong
	}
	d.add(f)
	if d.IntN(3) == 0 {
		d.add(Fault{Kind: Flash, At: f.At + d.between(0, f.For-recovery), Node: ids[n+d.IntN(len(ids)-n)]})
	}
	d.plan.Calm = f.At + f.For + recovery
}

// latest adds nodes that no other reaches, and addresses that a new node has or one of another cluster, each to a quarter of the plans or more.
func (d *drawer) latest(r *rand.Rand) {
	d.Rand = r
	hidden, address := d.IntN(4) == 0, d.IntN(3) == 0
	if hidden {
		f := Fault{Kind: Hidden, At: d.between(settle, d.plan.Calm-time.Second), Node: "y"}
		f.For = min(d.between(3*time.Second, longestOf), d.plan.Calm-f.At)
		d.add(f)
	}
	if address {
		d.readdress()
	}
}

// readdress adds, once all other faults are over, that a node dies and another one is started at its address. In half of the plans the network
// or etcd has a fault as well.
func (d *drawer) readdress() {
	f := Fault{Kind: addresses[d.IntN(len(addresses))], At: d.plan.Calm + healing}
	f.Node = d.pick(slices.Sorted(slices.Values(d.alive)))
	f.For = d.between(occupiedLeast, occupiedMost)
	if f.Kind == Reused {
		f.Other, f.For = name(d.names), d.between(100*time.Millisecond, vacantMost)
		d.names++
	}
	d.alive = slices.DeleteFunc(d.alive, func(id string) bool { return id == f.Node })
	d.plan.Calm = f.At + f.For + startFor + recovery
	d.add(f)
	if kinds := []Kind{Slow, Reset, OneWay, EtcdStop, EtcdHang}; d.IntN(2) == 0 {
		at := f.At + d.between(0, vacantMost)
		if more, possible := d.fault(kinds[d.IntN(len(kinds))], at); possible {
			d.add(more)
		}
	}
	d.alive = append(d.alive, cmp.Or(f.Other, f.Node))
}

func (d *drawer) add(f Fault) {
	d.plan.Faults = append(d.plan.Faults, f)
	slices.SortStableFunc(d.plan.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}
