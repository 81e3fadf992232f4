package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster"
)

// lookEvery is how often it is looked who decides: at other instants each time than those at which nodes
// tend to do things.
const lookEvery = 29 * time.Millisecond

// terms are those in which a node decides, by partition, 0 for none.
type terms struct {
	id string
	by []uint64
}

// deciding returns who decides, of all nodes that were not killed, and not only of those that are to go on.
func (w *World) deciding() (now []terms) {
	w.mu.Lock()
	nodes := slices.Clone(w.built)
	w.mu.Unlock()
	for _, b := range nodes {
		if !b.node.dead.Load() {
			now = append(now, terms{b.node.ID, b.ownership.Deciding()})
		}
	}
	return now
}

// watchDeciders looks until ctx ends whether two nodes decide in one partition.
func (w *World) watchDeciders(ctx context.Context) {
	for found := false; ctx.Err() == nil; wait(ctx, lookEvery) {
		now := w.deciding()
		w.follow(now)
		if found {
			continue
		}
		if len(heldTwice(now, now)) == 0 || w.waived(w.now()) {
			continue
		}
		problems := heldTwice(now, w.deciding())
		for _, p := range problems[:min(len(problems), 3)] {
			w.add("CHECK", "%s", p)
			w.fail("%.3fs %s", w.now().Seconds(), p)
		}
		found = len(problems) > 0
	}
}

// follow notes where the keys' partitions are, if that has changed.
func (w *World) follow(now []terms) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var view *cluster.View
	for _, b := range w.built {
		if v := b.ownership.Newest(); !b.node.dead.Load() && v != nil && (view == nil || v.Number > view.Number) {
			view = v
		}
	}
	if view == nil {
		return
	}
	w.checkMembersLocked(view)
	for k, p := range w.partitions {
		owner, standby := view.Members[view.Ring.Owner(p)].ID, view.Members[view.Ring.Standby(p)].ID
		what := fmt.Sprintf("%v, partition %d: %s owns it, %s stands by, decided by", k, p, owner, standby)
		for _, t := range now {
			if t.by[p] != 0 {
				what += " " + t.id
			}
		}
		if trace := w.traces[k]; len(trace) == 0 || trace[len(trace)-1].what != what {
			w.traces[k] = append(trace, entry{w.now(), "OWNER", what})
		}
	}
}

// checkMembersLocked finds the first member that must be none.
func (w *World) checkMembersLocked(v *cluster.View) {
	for _, m := range v.Members {
		why := ""
		switch by := w.clocks[m.ID]; {
		case by > cluster.MaxClockDifference:
			why = fmt.Sprintf("its clock is %v ahead", by)
		case w.hidden[m.ID]:
			why = "no other reaches it"
		}
		if why != "" && !w.unfit {
			w.unfit = true
			w.failures = append(w.failures, fmt.Sprintf("%.3fs node %s is a member of view %d although %s", w.now().Seconds(), m.ID, v.Number, why))
		}
	}
}

// heldTwice returns the partitions that two nodes decide for, by two looks one after the other. The nodes
// of one look are not asked at once, and the right to decide may go from one to the other meanwhile. A node
// that had it in the same term before and after another node had it, had it at the same time.
func heldTwice(before, after []terms) (problems []string) {
	for i, a := range before {
		j := slices.IndexFunc(after, func(t terms) bool { return t.id == a.id })
		if j < 0 {
			continue
		}
		for _, b := range before[i+1:] {
			for p, term := range a.by {
				if term != 0 && b.by[p] != 0 && after[j].by[p] == term {
					problems = append(problems, fmt.Sprintf("partition %d is decided by %s in term %x and by %s in term %x", p, a.id, term, b.id, b.by[p]))
				}
			}
		}
	}
	return problems
}

// notHeldOnce says in which partitions not one node decides, but none or several.
func notHeldOnce(now []terms) (problems []string) {
	if len(now) == 0 {
		return []string{"no node runs"}
	}
	for p := range now[0].by {
		var by []string
		for _, t := range now {
			if t.by[p] != 0 {
				by = append(by, t.id)
			}
		}
		if len(by) != 1 {
			problems = append(problems, fmt.Sprintf("partition %d is decided by %v", p, by))
		}
	}
	if n := len(problems); n > 3 {
		problems = append(problems[:3], fmt.Sprintf("%d partitions are not decided by one node", n))
	}
	return problems
}
