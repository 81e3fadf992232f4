package sim

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// step is something that is to be done at an instant.
type step struct {
	at time.Duration
	do func()
}

// play carries out the faults of a plan, and returns when they are over.
func (w *World) play(p Plan) {
	var steps []step
	for _, f := range p.Faults {
		steps = append(steps, step{f.At, func() {
			w.add("FAULT", "%v", f)
			undo := w.begin(f)
			if f.For > 0 {
				steps = append(steps, step{f.At + f.For, func() {
					w.add("FAULT", "over: %v", f)
					undo()
				}})
			}
		}})
	}
	for len(steps) > 0 {
		slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
		next := steps[0]
		steps = steps[1:]
		w.sleepUntil(next.at)
		next.do()
	}
	w.sleepUntil(p.Calm)
	w.add("FAULT", "calm")
}

func (w *World) sleepUntil(at time.Duration) {
	if left := at - w.now(); left > 0 {
		time.Sleep(left)
	}
}

// begin begins a fault and returns what ends it.
func (w *World) begin(f Fault) (undo func()) {
	switch f.Kind {
	case Join:
		w.launch(f.Node)
	case Drain:
		w.Drain(f.Node)
	case Restart:
		if gone := w.Drain(f.Node); gone != nil {
			w.running.Go(func() {
				<-gone
				w.launch(f.Node)
			})
		}
	case Flash:
		if w.Kill(f.Node) { // else a restart takes longer than planned, and starts it
			w.launch(f.Node)
		}
	case Crash:
		if w.Kill(f.Node) {
			return func() { w.launch(f.Node) }
		}
	case Reused:
		w.Kill(f.Node)
		return func() { w.check("starting node", w.StartOn(f.Other, f.Node)) }
	case Foreign:
		w.Kill(f.Node)
		end, err := w.Occupy(f.Node)
		w.check("starting node of another cluster", err)
		return func() {
			end()
			w.launch(f.Node)
		}
	case Hidden:
		w.hide(f.Node)
		w.launch(f.Node)
		return func() { w.Kill(f.Node) }
	case Reset:
		w.network.Reset(w.hostOf(f.Node), w.hostOf(f.Other))
	case Slow:
		return w.slow(f.Node, []string{f.Other}, f.Delay)
	case Lag:
		return w.slow(f.Node, w.others([]string{f.Node}), f.Delay)
	case OneWay:
		w.cut(f.Node, f.Other, 1)
		return func() { w.cut(f.Node, f.Other, -1) }
	case Split:
		others := w.others(f.Group)
		if f.NoEtcd {
			others = append(others, etcdHost)
		}
		return w.divide(f.Group, others)
	case Exile:
		return w.divide(f.Group, append(w.others(f.Group), etcdHost))
	case Ahead:
		w.setClock(f.Node, f.Delay)
		w.launch(f.Node)
		return func() { w.Kill(f.Node) }
	case Stall:
		others := append(w.others([]string{f.Node}), etcdHost)
		for i := range clients {
			others = append(others, clientHost(i))
		}
		return w.divide([]string{f.Node}, others)
	case EtcdCut:
		return w.divide([]string{f.Node}, []string{etcdHost})
	case EtcdStop:
		w.etcd.Stop()
		return func() { w.check("starting etcd", w.startEtcd()) }
	case EtcdHang:
		w.etcd.Pause()
		return w.etcd.Resume
	case EtcdLost:
		w.etcd.LoseLeader()
		return w.etcd.ElectLeader
	}
	return func() {}
}

func (w *World) launch(id string) { w.check("starting node", w.Start(id)) }

func (w *World) check(what string, err error) {
	if err != nil {
		w.fail("%s: %v", what, err)
	}
}

// slow makes what one host sends to others take d longer until undo.
func (w *World) slow(from string, others []string, d time.Duration) (undo func()) {
	for _, to := range others {
		w.delay(from, to, d)
	}
	return func() {
		for _, to := range others {
			w.delay(from, to, -d)
		}
	}
}

// divide lets nothing pass between hosts of two groups until undo.
func (w *World) divide(some, others []string) (undo func()) {
	w.isolate(some, others, 1)
	return func() { w.isolate(some, others, -1) }
}

// Kind is what a fault is.
type Kind string

// The kinds of faults. Those of the first group are announced or hit the network or etcd only: they never
// let limits be exceeded.
const (
	Join     Kind = "join"     // a node starts
	Drain    Kind = "drain"    // Node is told to stop
	Restart  Kind = "restart"  // Node is told to stop, and started again under its id
	Slow     Kind = "slow"     // what Node sends to Other takes Delay longer
	Reset    Kind = "reset"    // the connections between Node and Other break
	OneWay   Kind = "one way"  // nothing comes from Node to Other; both reach all others
	EtcdStop Kind = "etcd off" // etcd stops, and starts again with its data
	EtcdHang Kind = "etcd hangs"
	EtcdLost Kind = "etcd without leader"
	EtcdCut  Kind = "cut off from etcd" // Node is

	Crash Kind = "crash"         // Node is killed, and started again after For
	Flash Kind = "flash restart" // Node is killed, and started again at once
	Split Kind = "split"         // nothing passes between Group and the other nodes
	Stall Kind = "stall"         // nothing passes between Node and others
	Lag   Kind = "lag"           // what Node sends to other nodes takes Delay longer than these wait

	Exile Kind = "exile" // nothing passes between Group, a majority, and the other nodes and etcd
	Ahead Kind = "ahead" // Node is started with a clock that is Delay ahead, and killed after For

	Reused  Kind = "reused address"  // Node is killed for good, and Other started at its address after For
	Foreign Kind = "foreign address" // Node is killed, a node of another cluster runs at its address for For, and then Node is started again
	Hidden  Kind = "hidden"          // Node is started, advertises an address where it does not listen, and is killed after For
)

var (
	announced = []Kind{Join, Join, Drain, Drain, Restart, Restart, Slow, Reset, OneWay}
	ofEtcd    = []Kind{EtcdStop, EtcdHang, EtcdLost, EtcdCut}
	deaths    = []Kind{Crash, Crash, Flash, Flash}
	divisions = []Kind{Split, Stall, Lag}
	ofClocks  = []Kind{Ahead}
	exiles    = []Kind{Exile}
	addresses = []Kind{Reused, Foreign}
	hidings   = []Kind{Hidden}
)

// Fault is one thing that happens.
type Fault struct {
	Kind        Kind
	At          time.Duration // since the start
	For         time.Duration // 0 if it does not last
	Node, Other string
	Group       []string
	Delay       time.Duration
	NoEtcd      bool // Group does not reach etcd either
}

// String says what happens, without when.
func (f Fault) String() string {
	parts := []string{string(f.Kind)}
	if f.Node != "" {
		parts = append(parts, f.Node)
	}
	if f.Other != "" {
		parts = append(parts, "->", f.Other)
	}
	if f.Group != nil {
		parts = append(parts, strings.Join(f.Group, ","))
	}
	if f.NoEtcd {
		parts = append(parts, "and etcd")
	}
	if f.Delay > 0 {
		parts = append(parts, "by", f.Delay.String())
	}
	if f.For > 0 {
		parts = append(parts, "for", f.For.String())
	}
	return strings.Join(parts, " ")
}
