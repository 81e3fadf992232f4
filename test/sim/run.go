package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Holders tells which partitions a node holds: for which of them it admits by itself.
// It is asked when the cluster must be whole, after the load.
type Holders interface {
	Holds(ctx context.Context, id string) (partitions []uint32, err error)
}

// Result is what came of a plan.
type Result struct {
	Plan     Plan
	Timeline *Timeline
	Records  *Records

	// Broken is what does not hold whatever the owners do with their counters: errors,
	// views that differ, nodes that end.
	Broken []string
	// Inexact is what does not hold of the counters: too much was granted, a check that
	// somebody should have decided was not, or a partition has not one holder.
	Inexact []string
}

// Hooks are what a run may do beside its plan.
type Hooks struct {
	// Holders makes what is asked who holds what. Nil means that nobody is asked.
	Holders func(w *World) Holders
	// During runs beside the load, from the start of the plan on.
	During func(w *World)
}

// Run plays a plan. It must be called in a bubble, and leaves nothing behind in it.
func Run(p Plan, hooks Hooks) (*Result, error) {
	w, err := NewWorld()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := w.begins(p); err != nil {
		return nil, err
	}
	r := &Result{Plan: p, Timeline: w.Timeline, Records: newRecords()}
	ctx, cancel := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	beside.Go(func() {
		if err := w.load(ctx, p, r.Records); err != nil {
			w.fail("load: %v", err)
		}
	})
	if hooks.During != nil {
		beside.Go(func() { hooks.During(w) })
	}
	w.play(p)
	w.sleepUntil(p.End())
	r.Broken = w.differences()
	cancel()
	beside.Wait()
	if hooks.Holders != nil {
		r.Inexact = w.notHeldOnce(hooks.Holders(w))
	}
	r.judge(w)
	return r, nil
}

// begins starts the first nodes, and gives them their rules.
func (w *World) begins(p Plan) error {
	for _, id := range p.Start {
		if err := w.Start(id); err != nil {
			return err
		}
	}
	time.Sleep(settle / 2) // until all are members
	conn, err := w.connect(p.Start[0])
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is under way
	_, err = weirv1.NewRateLimiterConfigClient(conn).ApplyRules(context.Background(), &weirv1.ApplyRulesRequest{Rules: text()})
	time.Sleep(settle / 4) // until all have them
	return err
}

// differences says what of the view is not as it must be when all faults are over.
func (w *World) differences() (problems []string) {
	ids := w.ids()
	var first *weirv1.GetRingResponse
	for _, id := range ids {
		ring, err := w.ring(id)
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("node %s does not tell its view: %v", id, err))
		case first == nil:
			first = ring
			if members := membersOf(ring); !slices.Equal(members, ids) {
				problems = append(problems, fmt.Sprintf("members of view %d are %v, nodes that run are %v", ring.GetView(), members, ids))
			}
		case ring.GetView() != first.GetView() || !slices.Equal(ring.GetOwners(), first.GetOwners()) || !slices.Equal(membersOf(ring), membersOf(first)):
			problems = append(problems, fmt.Sprintf("node %s has view %d, node %s has view %d", ids[0], first.GetView(), id, ring.GetView()))
		}
	}
	return problems
}

func membersOf(r *weirv1.GetRingResponse) (ids []string) {
	for _, s := range r.GetShares() {
		ids = append(ids, s.GetId())
	}
	return ids
}

func (w *World) ring(id string) (*weirv1.GetRingResponse, error) {
	conn, err := w.connect(id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is under way
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return weirv1.NewClusterClient(conn).GetRing(ctx, &weirv1.GetRingRequest{Tables: true})
}

// notHeldOnce says which partitions have no holder, or several.
func (w *World) notHeldOnce(h Holders) (problems []string) {
	ids := w.ids()
	ring, err := w.ring(ids[0])
	if err != nil {
		return []string{fmt.Sprintf("node %s does not tell its view: %v", ids[0], err)}
	}
	held := make([][]string, ring.GetPartitions())
	for _, id := range ids {
		partitions, err := h.Holds(context.Background(), id)
		if err != nil {
			problems = append(problems, fmt.Sprintf("node %s does not tell what it holds: %v", id, err))
		}
		for _, p := range partitions {
			held[p] = append(held[p], id)
		}
	}
	for p, by := range held {
		if len(by) != 1 {
			problems = append(problems, fmt.Sprintf("partition %d is held by %v", p, by))
		}
	}
	return problems
}

// judge says what the records show.
func (r *Result) judge(w *World) {
	w.mu.Lock()
	r.Broken = append(r.Broken, w.failures...)
	w.mu.Unlock()
	r.Broken = append(r.Broken, r.some("failed", r.Records.errors)...)
	if !slices.ContainsFunc(r.Plan.Faults, func(f Fault) bool { return slices.Contains(divisions, f.Kind) }) {
		r.Inexact = append(r.Inexact, r.some("were decided by nobody", r.Records.refused)...)
	}
	for _, k := range r.Records.keys() {
		if e, found := r.Plan.Excess(k, r.Records.hits[k], w.start); found {
			r.Timeline.addAt(e.Since, "CHECK", "too much from now on: %v", e)
			r.Inexact = append(r.Inexact, e.String())
		}
	}
}

// some returns the first problems of many, and tells the timeline how many there were in
// every second.
func (r *Result) some(what string, problems []problem) (texts []string) {
	const most = 3
	perSecond := make(map[time.Duration]int)
	for i, p := range problems {
		perSecond[p.at.Truncate(time.Second)]++
		if i < most {
			texts = append(texts, p.String())
		}
	}
	for second, n := range perSecond {
		r.Timeline.addAt(second+time.Second, "CHECK", "%d checks of the last second %s", n, what)
	}
	if n := len(problems); n > most {
		texts = append(texts, fmt.Sprintf("%d checks %s", n, what))
	}
	return texts
}

// Summary says in one line what was asked and what came of it.
func (r *Result) Summary() string {
	admitted := 0
	for _, hits := range r.Records.hits {
		admitted += len(hits)
	}
	var by []string
	for _, source := range slices.Sorted(maps.Keys(r.Records.sources)) {
		by = append(by, fmt.Sprintf("%v %d", source, r.Records.sources[source]))
	}
	return fmt.Sprintf("seed %d: %d faults, %d checks, %d admitted, %d denied, %v; %d broken, %d inexact",
		r.Plan.Seed, len(r.Plan.Faults), r.Records.checks, admitted, r.Records.denied, by, len(r.Broken), len(r.Inexact))
}
