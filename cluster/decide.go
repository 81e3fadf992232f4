package cluster

import (
	"context"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/shard"
)

// Decide answers every group as shard.Decide does, wherever its counters live.
// A group that spans nodes is taken from all of them at once, and given back if one
// denies.
//
// Takes whose counter is on another node than expected are sent there. Takes that the owner does not
// answer are sent to its standby: their source is Standby if it has asked the owner, or else
// Provisional. If no node answers in time, the failure policy of the take applies: it stays
// Undecided and counts as allowed or as denied, or this node decides it by its share of the limit.
// A take that would wait for too long behind others is Overloaded at once, and denies.
//
// What is denied only because of takes that other groups may give back is asked again until they are settled; see
// contention.go.
func (r *Router) Decide(ctx context.Context, groups []shard.Group) {
	r.decide(ctx, groups)
	if i := firstContended(groups); i < len(groups) {
		r.decideContended(ctx, groups[i:])
	}
}

func (r *Router) decide(ctx context.Context, groups []shard.Group) {
	t := r.table.Load()
	if t == nil {
		for i := range groups {
			r.applyPolicies(nil, &groups[i])
		}
		return
	}
	switch {
	case len(t.peers) == 1 && t.peers[0] == nil && !anyFrees(groups):
		r.own.decideHere(groups, time.Time{})
		if anyUndecided(groups) {
			r.decideRest(ctx, t, 0, groups, time.Time{}, nil)
		}
		return
	case len(groups) == 1 && !frees(&groups[0]):
		if to, one := t.routeOf(&groups[0]); one {
			r.decideOne(ctx, t, to, groups)
			return
		}
	}
	r.decideMany(ctx, t, groups)
}

func anyFrees(groups []shard.Group) bool {
	for i := range groups {
		if frees(&groups[i]) {
			return true
		}
	}
	return false
}

// decideOne answers the one of groups, for whose counters that member is asked.
func (r *Router) decideOne(ctx context.Context, t *routingTable, to int, groups []shard.Group) {
	var due time.Time
	var hop trace.Span
	g := &groups[0]
	if t.peers[to] == nil {
		r.own.decideHere(groups, time.Time{})
	} else {
		due, hop = r.forwardOne(ctx, t, to, g)
	}
	if undecided(g) {
		r.decideRest(ctx, t, to, groups, due, hop)
	} else if t.peers[to] != nil {
		r.applyPolicies(t, g)
	}
}

// forwardOne answers g from what its owner has leased, or else asks the member
// that has it. It returns until when the request has time, and its span, which is nil unless it is traced.
func (r *Router) forwardOne(ctx context.Context, t *routingTable, to int, g *shard.Group) (due time.Time, hop trace.Span) {
	l, m, now := t.conn(to, g.Takes[0].Key), &t.peers[to].metrics, time.Now()
	c, answered := r.hot.consult(g, l, now)
	if answered {
		return now, nil
	}
	defer r.hot.learn(c, g, l, now)
	due = r.due(ctx, now)
	a := r.newCall(ctx, now, due)
	if a == nil {
		m.late.Inc()
		return due, nil
	}
	a.one[0], a.hot[0] = g, c
	hop = r.startHop(ctx, t.peers[to].member, asOwner)
	a.span = contextOf(hop)
	first, err := l.enqueue(a, a.one[:], a.hot[:])
	if err != nil {
		m.refused(err, a.one[:])
	}
	if r.wait(ctx, a) {
		if err == nil {
			l.giveUp(a, first, time.Now())
		}
		<-a.done
	}
	m.countAnswers(a.one[:])
	endHop(hop, a.one[:])
	r.calls.Put(a)
	return due, hop
}

// decideContended asks again for those groups that are contended, until they are not, or there is no time: then they
// stay denied.
func (r *Router) decideContended(ctx context.Context, groups []shard.Group) {
	began := time.Now()
	ends := began.Add(min(contendedFor*r.attempt, contendedMost))
	var again []shard.Group
	var index []int
	for pause := contendedPause; ; pause = min(2*pause, maxContended) {
		again, index = again[:0], index[:0]
		for i := range groups {
			if contended(&groups[i]) {
				again, index = append(again, groups[i]), append(index, i)
			}
		}
		wait := pause/2 + rand.N(pause)
		next := time.Now().Add(wait)
		if len(again) == 0 || next.After(ends) || !next.Before(r.due(ctx, next)) {
			return
		}
		pauseFor(ctx.Done(), wait)
		if ctx.Err() != nil {
			return
		}
		for i := range again {
			forget(&again[i])
			for j := range again[i].Takes {
				again[i].Takes[j].Tentative, again[i].Takes[j].Contended = false, false
			}
		}
		r.metrics.contended.Add(float64(len(again)))
		r.decide(ctx, again)
		for j, i := range index {
			groups[i] = again[j]
		}
	}
}
