package ownership

import (
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// endPredecessors tells replicas which predecessors have ended.
func (n *Node) endPredecessors() {
	if n.waiting.Load() == 0 {
		return
	}
	waited := make(map[view.Life]uint64) // the term of the latest owner that waits for it
	for x := range n.parts.each {
		if r := &x.replica; r.State == replica.Waiting {
			for _, l := range r.Claim.Predecessors {
				if r.Lacks(l) {
					waited[l] = max(waited[l], r.Claim.Term)
				}
			}
		}
	}
	for _, l := range n.observe(waited) {
		n.endPredecessor(l)
	}
}

// observe returns the lives that have ended.
func (n *Node) observe(waited map[view.Life]uint64) (ended []view.Life) {
	reports, now := n.Reports(), time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for l, term := range waited {
		if n.HasSaidFarewell(l) { // it grants nothing any more, although its witnesses may still confirm it
			ended = append(ended, l)
			continue
		}
		e := n.endings[l].Observe(now, n.view.HaveLeft(term, reports) && n.IsGone(l, term))
		n.endings[l] = e
		if e.HasEnded(now) {
			ended = append(ended, l)
		}
	}
	return ended
}

// endPredecessor has the owners that wait for a life decide without it, once they have heard the members.
func (n *Node) endPredecessor(l view.Life) {
	for x := range n.parts.each {
		if x.replica.Lacks(l) && !x.salvages() && !x.mustHear() {
			x.step(replica.Event{Kind: replica.Ended, From: l}, nil)
		}
	}
}
