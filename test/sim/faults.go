package sim

import (
	"cmp"
	"slices"
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
