package cluster

import (
	"slices"
	"time"
)

// authorityTerm is how long a node may admit after somebody has last borne witness to it. A
// new owner waits for as long before it makes a token anew, once a majority has adopted
// the view that says so.
const authorityTerm = 1500 * time.Millisecond

// authority says until when a node may admit. No lease fences a node that was stopped for
// a while: it must look at the clock itself. The witnesses are etcd, which has
// renewed the node's lease, or a majority of the members, which have answered heartbeats
// and knew no newer view. What counts is when the question was sent.
//
// Either will do: a token is only made anew when its holder's lease is gone and a
// majority has left the holder's view.
type authority struct {
	renewed time.Time            // the lease
	heard   map[string]time.Time // of the other members, when the last heartbeat was sent that each has answered
}

// view names the other members. What was heard of those that stay still counts.
func (a *authority) view(others []string) {
	old := a.heard
	a.heard = make(map[string]time.Time, len(others))
	for _, id := range others {
		a.heard[id] = old[id]
	}
}

// answered takes note of a heartbeat that a member has answered.
func (a *authority) answered(id string, sent time.Time) {
	if last, member := a.heard[id]; member && sent.After(last) {
		a.heard[id] = sent
	}
}

// until returns when the authority ends, the zero time if it never does: that of a node
// that is alone.
func (a *authority) until() time.Time {
	if len(a.heard) == 0 {
		return time.Time{}
	}
	witnessed := a.majority()
	if a.renewed.After(witnessed) {
		witnessed = a.renewed
	}
	return witnessed.Add(authorityTerm)
}

// majority returns when a majority of the members, this one included, has last answered.
func (a *authority) majority() time.Time {
	sent := make([]time.Time, 0, len(a.heard))
	for _, t := range a.heard {
		sent = append(sent, t)
	}
	slices.SortFunc(sent, func(x, y time.Time) int { return y.Compare(x) })
	others := (len(sent) + 1) / 2 // of 2 members the other one, of 3 one, of 4 and of 5 two
	return sent[others-1]
}
