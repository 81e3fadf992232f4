package cluster

import (
	"fmt"
	"math"
	"time"
)

// What operators are told of hand-over and of the counters of a partition.

// HandoverStatus says how far hand-over is.
type HandoverStatus struct {
	// Active is in how many of its partitions this node's tenure is active, Wanted how many the view gives to it that
	// it does not hold yet, and Leaving how many it holds that the view gives to others, or has
	// something of that others must have before it leaves, because no node holds them.
	Active, Wanted, Leaving int
	// Until is when this node's decision lease ends if neither etcd nor a majority confirms it any more, the zero
	// time if it never does.
	Until time.Time
	// State is what the node is doing, by its own word: Ready exactly if GET /readyz says so. It is unknown, "",
	// of a member that has not answered a heartbeat yet.
	State State
}

// HandoverStatus returns how far hand-over is.
func (k *Ownership) HandoverStatus() HandoverStatus {
	s := HandoverStatus{State: k.State()}
	k.mu.Lock()
	defer k.mu.Unlock()
	s.Until = k.lease.witnessed()
	if k.view == nil {
		return s
	}
	leaving := k.leaving()
	for p := range k.parts {
		mine := k.claim(uint32(p)).owner == k.ownParty
		switch state := k.parts[p].tenure.state; {
		case state == active && mine:
			s.Active++
		case state != absent && !mine, leaving && k.owesCopy(uint32(p)):
			s.Leaving++
		case mine:
			s.Wanted++
		}
	}
	return s
}

// owesCopy reports whether this node, if it leaves, has a copy of p that others may need: no member is
// known to have p, or as good a copy. It also owes what it has granted in the owner's place, and the last changes of a
// tenure that a view has fenced.
func (k *Ownership) owesCopy(p uint32) bool {
	pt := &k.parts[p]
	if pt.tenure.state != absent {
		return false
	}
	_, granted := k.outbox[p]
	return granted || k.isParting(p) || k.Shard.HasGrants(p) || pt.copy.whole && !pt.elsewhere
}

// leaving reports whether this node is a member that leaves.
func (k *Ownership) leaving() bool {
	i, member := k.view.Index(k.Self.ID)
	return member && k.view.Members[i].Leaving
}

// Deciding returns by partition the term of the tenure by which this node decides at the
// moment, 0 where it does not.
func (k *Ownership) Deciding() []Term {
	k.mu.Lock()
	defer k.mu.Unlock()
	by := make([]Term, len(k.parts))
	for p := range k.parts {
		if t := &k.parts[p].tenure; t.state == active && k.Shard.IsDeciding(uint32(p)) {
			by[p] = t.term
		}
	}
	return by
}

// Newest returns the view by which this node routes, nil before the first.
func (k *Ownership) Newest() *View { return k.Router.View() }

// Worth is what a node's counters of one partition are worth at an instant, for people to read.
type Worth struct {
	said      string // all of it, by Owners; else empty
	view      uint64
	copy      copyVersion
	replica   partState
	outbox    int // grants that the owner has not acknowledged
	suspended bool
	nowhere   bool // the node has no view
	isMember  bool
}

// Worth returns what this node's counters of p are worth.
func (k *Ownership) Worth(p uint32) Worth {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := Worth{nowhere: k.view == nil, copy: k.copyOf(p), replica: k.parts[p], outbox: len(k.outbox[p].grants), suspended: k.lease.suspended}
	if k.view != nil {
		w.view = k.view.Number
		_, w.isMember = k.view.Index(k.Self.ID)
	}
	return w
}

// String says it in a line.
func (w Worth) String() string {
	if w.said != "" {
		return w.said
	}
	if w.nowhere {
		return "no view"
	}
	s := fmt.Sprintf("view %d", w.view)
	switch word := func(when bool, text string) {
		if when {
			s += ", " + text
		}
	}; w.replica.tenure.state {
	case active:
		s += fmt.Sprintf(", tenure %x", w.replica.tenure.term)
		word(w.suspended, "suspended")
	case sealed:
		s += fmt.Sprintf(", tenure %x sealed for %s", w.replica.tenure.term, w.replica.tenure.to.id)
	default:
		h := &w.replica
		s += fmt.Sprintf(", copy %x/%d", w.copy.term, w.copy.seq&^granted)
		word(w.copy.seq&granted != 0, "granted from")
		word(!w.copy.whole, "in part")
		word(h.fresh, "fresh")
		word(h.last, "last")
		word(h.pulling, "fetching")
		word(h.restarted, "restarted")
		word(h.copyAt.id != "", "copy at "+h.copyAt.id)
		word(h.from != "", "to come from "+h.from)
		word(h.elsewhere, "also elsewhere")
		word(w.outbox > 0, fmt.Sprintf("%d grants under way", w.outbox))
	}
	if !w.isMember {
		s += ", no member"
	}
	return s
}

// left returns how many seconds of the decision lease are left.
func (s HandoverStatus) left(now time.Time) float64 {
	if s.Until.IsZero() {
		return math.Inf(1)
	}
	return max(0, s.Until.Sub(now).Seconds())
}
