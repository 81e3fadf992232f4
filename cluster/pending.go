package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/shard"
)

// waiting are questions that were asked together and not answered yet. A peer answers
// them in their order.
type waiting struct {
	ask    *ask
	first  uint32         // id; the others follow it
	groups []*shard.Group // where the answers go; at least one
	hot    []*hotCounter  // beside groups, those asked about as opHot; nil if there are none
}

// pending are the questions of one lane that wait for their answers, in the order in which
// they were asked, which is that of their ids and of the answers.
type pending struct {
	list []waiting // from head on
	head int
}

// before reports whether the id a was given before b. Ids begin again when there are no more.
func before(a, b uint32) bool { return int32(a-b) < 0 }

func (p *pending) waiting() []waiting { return p.list[p.head:] }

func (p *pending) add(w waiting) {
	if len(p.list) == cap(p.list) && p.head > len(p.list)/2 { // rather than grow
		p.keep(slices.Delete(p.list, 0, p.head))
	}
	p.list = append(p.list, w)
}

// keep makes list all that waits.
func (p *pending) keep(list []waiting) { p.list, p.head = list, 0 }

// next takes the question of that id off those that wait; a is nil if nobody waits for it any
// more. It may be about a hot counter.
func (p *pending) next(id uint32) (a *ask, g *shard.Group, c *hotCounter, err error) {
	if p.head == len(p.list) || before(id, p.list[p.head].first) {
		return nil, nil, nil, nil
	}
	w := &p.list[p.head]
	if id != w.first {
		return nil, nil, nil, fmt.Errorf("answer %d comes before answer %d", id, w.first)
	}
	a, g = w.ask, w.groups[0]
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

// take removes a's questions from first on, and returns the groups of those that were not
// answered.
func (p *pending) take(a *ask, first uint32) []*shard.Group {
	list := p.waiting()
	i, _ := slices.BinarySearchFunc(list, first, func(w waiting, first uint32) int { return int(int32(w.first - first)) })
	if i == len(list) || list[i].ask != a {
		return nil
	}
	groups := list[i].groups
	p.list = slices.Delete(p.list, p.head+i, p.head+i+1)
	return groups
}

// takeDue removes what is to be given up by now, and says when the next of the others is;
// the zero Time if there are none.
func (p *pending) takeDue(now time.Time) (due []waiting, next time.Time) {
	p.keep(slices.DeleteFunc(slices.Delete(p.list, 0, p.head), func(w waiting) bool {
		if w.ask.due.After(now) {
			if next.IsZero() || w.ask.due.Before(next) {
				next = w.ask.due
			}
			return false
		}
		due = append(due, w)
		return true
	}))
	return due, next
}
