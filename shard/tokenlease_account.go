package shard

import (
	"slices"

	"github.com/weirlimit/weir/algorithms"
)

// account is the token leases of one counter. A bucket's state is not below its open leases when it is
// read: see hold. A counter that has an account has no history.
type account struct {
	limit  algorithms.Limit
	leases []trackedLease // in the order of at; at is unique
}

// trackedLease is a TokenLease that was not settled. It is open until its time is over; then the tokens
// left count as used, unless they come back within settleFor.
type trackedLease struct {
	at, until int64 // its identity, and when it ends
	ends      int64 // of a window: when that ends, so that leases of one window can be told from others
	left      int64 // of the counter's tokens, as far as is known; >= 0
	unit      int64 // counter's tokens per token of the lease; 0 if they are counted at another take
	node      bool  // of a node, which settles it; a client may not
	over      bool  // its time is over, and the counter's state includes that
}

// out returns how many leased tokens may still be used, by nodes, and in all.
func (a *account) out() (nodes, all int64) {
	if a == nil {
		return 0, 0
	}
	for i := range a.leases {
		if o := &a.leases[i]; !o.over {
			all += o.left
			if o.node {
				nodes += o.left
			}
		}
	}
	return nodes, all
}

// hold returns state as of now, with open leases counted in it as algorithms.Hold does. It changes nothing.
func (a *account) hold(l *algorithms.Limit, state algorithms.State, now int64) algorithms.State {
	if a == nil || !l.Algorithm.Drains() {
		return state
	}
	_, out := a.out()
	for done := int64(-1); ; { // leases that end by now, in the order in which they do
		next := int64(algorithms.Never)
		for i := range a.leases {
			if o := &a.leases[i]; !o.over && o.until > done && o.until <= now {
				next = min(next, o.until)
			}
		}
		if next == algorithms.Never {
			break
		}
		state = algorithms.Hold(l, state, next, out)
		for i := range a.leases {
			if o := &a.leases[i]; !o.over && o.until == next {
				out -= o.left
			}
		}
		done = next
	}
	if out == 0 {
		return state
	}
	return algorithms.Hold(l, state, now, out)
}

// find returns the index of the lease of at, false if there is none.
func (a *account) find(at int64) (i int, found bool) {
	if a == nil {
		return 0, false
	}
	return slices.BinarySearchFunc(a.leases, at, func(o trackedLease, at int64) int { return int(min(1, max(-1, o.at-at))) })
}

// outlast returns state raised so that leased tokens stay counted for as long as they may be used, without
// hold.
func (a *account) outlast(state algorithms.State, now int64) algorithms.State {
	for i := range a.leases {
		if last := &a.leases[i]; !last.over && last.until > now {
			together := int64(0)
			for j := range a.leases {
				if o := &a.leases[j]; !o.over && o.until >= last.until {
					together += o.left
				}
			}
			state = algorithms.Outlast(&a.limit, state, now, together, min(last.until, now+int64(nodeLeaseTime)))
		}
	}
	return state
}
