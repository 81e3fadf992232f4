package cluster

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/shard"
)

// giveBack has the local shard undo takes.
func (o *ownReplicas) giveBack(takes []shard.Take) { o.denialLeases.giveBack(o.local, takes) }

// giveBackTo has takes undone by the node of that mark, which has decided them in the place of another. If this
// node does not reach that, it has them undone through via, the peer that it has asked, unless that is nil.
func (o *ownReplicas) giveBackTo(mark uint64, via *conn, takes []shard.Take) {
	t := o.router.table.Load()
	to := noMember
	if t != nil {
		to = slices.Index(t.marks, mark)
	}
	k := takes[0].Key
	switch {
	case to != noMember && t.peers[to] == nil:
		o.giveBack(takes)
	case to != noMember && (via == nil || t.answers(to, k)) && t.conn(to, k).giveBack(takes, 0) == nil:
	case via != nil && via.giveBack(takes, mark) == nil:
	default:
		o.router.metrics.lostReturns.Inc()
	}
}

// passOn has takes undone by the nodes that have their counters now: what this node had decided as the owner, and does
// not have any more. What was passed on already is lost.
func (o *ownReplicas) passOn(takes []shard.Take) {
	for i := range takes {
		o.passTo("", takes[i])
	}
}

// returnAfterMost is how long a node waits at most in one step until the owner has what it has granted as the standby. What was given back of that is lost
// afterwards. Each step takes twice as long as the one before, from passOnAfter on: 10 s in all, in which another node would be the owner.
const returnAfterMost = 256 * passOnAfter

// returnGranted has takes undone that this node has granted as the standby, by the owner, once that has the grants. If it does not have them yet, that is tried
// again after wait. What is lost in the end leaves too few tokens rather than too many.
func (o *ownReplicas) returnGranted(takes []shard.Take, wait time.Duration) {
	var early []shard.Take
	for i := range takes {
		if to := o.locator.ReturnGranted(takes[i]); to != "" {
			o.passTo(to, takes[i])
		} else {
			early = append(early, takes[i])
		}
	}
	again := func(takes []shard.Take) { o.returnGranted(takes, 2*wait) }
	if len(early) > 0 && (wait > returnAfterMost || !o.denialLeases.later(wait, early, again)) {
		o.router.metrics.lostReturns.Add(float64(len(early)))
	}
}

// passTo has a take undone by the member of that id, by the one that has its counter if that is "", or else by the one that is
// asked about the counter.
func (o *ownReplicas) passTo(id string, take shard.Take) {
	t := o.router.table.Load()
	if t == nil {
		o.router.metrics.lostReturns.Inc()
		return
	}
	if id == "" {
		id = t.has(take.Key)
	}
	to, member := t.view.Index(id)
	if !member || to == t.self {
		to = t.route(take.Key)
	}
	take.Source = shard.Redirected
	if t.peers[to] == nil || t.conn(to, take.Key).giveBack([]shard.Take{take}, 0) != nil {
		o.router.metrics.lostReturns.Inc()
	}
}

// giveBack lets local give takes back as soon as it may, and does not wait. What another node is to give back
// it passes on.
func (p *GivenDenialLeases) giveBack(local Local, takes []shard.Take) {
	wait := p.begin(takes)
	switch {
	case wait == 0:
		p.returns(local, takes)
		p.end(takes)
	case !p.later(wait, takes, func(takes []shard.Take) { p.giveBack(local, takes) }):
		p.returns(local, takes)
	}
}

// returns lets local give takes back, and passes on once what another node is to give back: what was passed on to
// this node is lost then.
func (p *GivenDenialLeases) returns(local Local, takes []shard.Take) {
	last, granted := isRedirected(takes[0]), takes[0].Source == shard.Provisional
	local.Return(takes)
	rest := slices.DeleteFunc(slices.Clone(takes), func(t shard.Take) bool { return !isRedirected(t) })
	switch {
	case len(rest) == 0 || p.own == nil:
	case last:
		p.own.router.metrics.lostReturns.Add(float64(len(rest)))
	case granted:
		p.own.returnGranted(rest, passOnAfter)
	case !p.later(passOnAfter, rest, p.own.passOn):
		p.own.passOn(rest)
	}
}
