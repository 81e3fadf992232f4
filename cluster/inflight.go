package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/shard"
)

// waiting are requests that were asked together and not answered yet. A peer answers
// them in their order.
type waiting struct {
	call   *call          // nil if they were given up: then groups are copies of what was asked
	first  uint32         // id; the others follow it
	groups []*shard.Group // where the answers go; at least one
	hot    []*hotCounter  // parallel to groups, those asked about as opHot; nil if there are none
}

// inflight are the requests of one conn that wait for their answers, in the order in which
// they were asked, which is that of their ids and of the answers.
type inflight struct {
	list  []waiting // from head on
	head  int
	takes int // of what was given up and may be counted yet; <= maxAbandoned
}

// maxAbandoned is of how many takes a conn remembers that they were given up, so that they are given back if
// the peer counts them all the same.
const maxAbandoned = 16 << 10

// abandon returns what remains of w, which is given up: the takes that are given back if they are answered yet. It
// is false if that is nothing, or more than a conn remembers.
func (p *inflight) abandon(w waiting) (waiting, bool) {
	takes := 0
	for _, g := range w.groups {
		if counts(g) {
			takes += len(g.Takes)
		}
	}
	if takes == 0 || p.takes+takes > maxAbandoned {
		return waiting{}, false
	}
	p.takes += takes
	all, copies, groups := make([]shard.Take, 0, takes), make([]shard.Group, len(w.groups)), make([]*shard.Group, len(w.groups))
	for i, g := range w.groups {
		groups[i] = &copies[i]
		if counts(g) {
			first := len(all)
			all = append(all, g.Takes...)
			copies[i] = shard.Group{Takes: all[first:len(all):len(all)], Lend: g.Lend, Tokens: g.Tokens}
		}
	}
	return waiting{first: w.first, groups: groups}, true
}

// counts reports whether a peer that decides g may use up something, which is to be given back if g is given up.
func counts(g *shard.Group) bool {
	return !g.Peek && g.LentAt == 0 && g.Deferred == 0 && !frees(g) && slices.ContainsFunc(g.Takes, func(t shard.Take) bool { return t.Cost > 0 })
}

// countable returns how many of the requests may be counted.
func countable(list []waiting) (n int) {
	for _, w := range list {
		for _, g := range w.groups {
			n += int(boolByte(counts(g)))
		}
	}
	return n
}

// before reports whether the id a was given before b. Ids begin again when there are no more.
func before(a, b uint32) bool { return int32(a-b) < 0 }

func (p *inflight) waiting() []waiting { return p.list[p.head:] }

func (p *inflight) add(w waiting) {
	if len(p.list) == cap(p.list) && p.head > len(p.list)/2 { // rather than grow
		p.keep(slices.Delete(p.list, 0, p.head))
	}
	p.list = append(p.list, w)
}

// keep makes list all that waits.
func (p *inflight) keep(list []waiting) { p.list, p.head = list, 0 }

// next takes the request of that id off those that wait; a is nil if no caller waits for it any more, and
// g as well unless it may be counted yet. It may be about a hot counter.
func (p *inflight) next(id uint32) (a *call, g *shard.Group, c *hotCounter, err error) {
	if p.head == len(p.list) || before(id, p.list[p.head].first) {
		return nil, nil, nil, nil
	}
	w := &p.list[p.head]
	if id != w.first {
		return nil, nil, nil, fmt.Errorf("answer %d comes before answer %d", id, w.first)
	}
	if a, g = w.call, w.groups[0]; a == nil {
		p.takes -= len(g.Takes)
	}
	w.first++
	w.groups = w.groups[1:]
	if w.hot != nil {
		c, w.hot = w.hot[0], w.hot[1:]
	}
	if len(w.groups) == 0 {
		*w = waiting{}
		if p.head++; p.head == len(p.list) {
			p.keep(p.list[:0])
		}
	}
	return a, g, c, nil
}

// take takes off a's requests from first on, and returns the groups of those that were not
// answered.
func (p *inflight) take(a *call, first uint32) []*shard.Group {
	list := p.waiting()
	i, _ := slices.BinarySearchFunc(list, first, func(w waiting, first uint32) int { return int(int32(w.first - first)) })
	if i == len(list) || list[i].call != a {
		return nil
	}
	groups := list[i].groups
	if rest, remains := p.abandon(list[i]); remains {
		list[i] = rest
	} else {
		p.list = slices.Delete(p.list, p.head+i, p.head+i+1)
	}
	return groups
}

// takeDue takes off what is to be given up by now, and says when the next of the others is;
// the zero Time if there are none.
func (p *inflight) takeDue(now time.Time) (due []waiting, next time.Time) {
	list := p.list[:0]
	for _, w := range p.waiting() {
		switch {
		case w.call == nil:
		case w.call.due.After(now):
			if next.IsZero() || w.call.due.Before(next) {
				next = w.call.due
			}
		default:
			due = append(due, w)
			rest, remains := p.abandon(w)
			if !remains {
				continue
			}
			w = rest
		}
		list = append(list, w)
	}
	clear(p.list[len(list):])
	p.keep(list)
	return due, next
}
