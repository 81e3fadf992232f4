package view

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// world is a cluster in which views are written, adopted and reported. Its owners settle and its learners are fed as soon as the
// rules allow it.
type world struct {
	view        *View
	nodes       map[Life]Member
	does        map[Life]*doing
	reports     map[Life]Report
	prefer      [][]string // by partition: ids, the wanted ones first
	deaf        map[Life]bool
	silent      map[Life]bool
	unconnected []Pair
	farewells   []Life
	overdue     bool
}

// doing is what a life does, by partition.
type doing struct {
	settled  []uint64 // the term in which it has settled as owner
	complete []uint64 // the number of the view in which it had everything
}

func newWorld(partitions int) *world {
	return &world{
		nodes: make(map[Life]Member), does: make(map[Life]*doing), reports: make(map[Life]Report), prefer: make([][]string, partitions), deaf: make(map[Life]bool), silent: make(map[Life]bool),
	}
}

func lifeOf(s string) Life {
	id, text, found := strings.Cut(s, "@")
	l := Life{id, 1}
	if found {
		l.Incarnation, _ = strconv.ParseUint(text, 10, 64) // 0 shows
	}
	return l
}

func (w *world) see(l Life, s State) { w.nodes[l] = Member{l, l.ID + ":1", s} }

func (w *world) seen() (s Seen) {
	for _, l := range slices.SortedFunc(maps.Keys(w.nodes), compareLives) {
		s.Nodes = append(s.Nodes, w.nodes[l])
	}
	s.Overdue, s.Unconnected, s.Farewells = w.overdue, w.unconnected, w.farewells
	for l, is := range w.silent {
		if is {
			s.Silent = append(s.Silent, l)
		}
	}
	return s
}

func (w *world) plan() Plan {
	plan := make(Plan, len(w.prefer))
	ids := w.view.staying()
	for p, prefer := range w.prefer {
		wanted := slices.DeleteFunc(slices.Clone(prefer), func(id string) bool { return !slices.Contains(ids, id) })
		for _, id := range ids {
			if !slices.Contains(wanted, id) {
				wanted = append(wanted, id)
			}
		}
		plan[p].Owner = wanted[0]
		if len(wanted) > 1 {
			plan[p].Standby = wanted[1]
		}
	}
	return plan
}

func (w *world) all() (r Reports) {
	for _, l := range slices.SortedFunc(maps.Keys(w.reports), compareLives) {
		r = append(r, w.reports[l])
	}
	return r
}

// lives reports whether a life runs and is heard. One that was restarted does not.
func (w *world) lives(l Life) bool {
	n, found := w.nodes[l]
	return found && !w.isKnown(Life{l.ID, l.Incarnation + 1}) && (n.State == Ready || n.State == Leaving) && !w.deaf[l] && !slices.Contains(w.farewells, l)
}

// adopt has some lives adopt the view and report; all that are heard, if none is named.
func (w *world) adopt(some ...Life) {
	if len(some) == 0 {
		some = slices.Collect(maps.Keys(w.nodes))
	}
	some = slices.DeleteFunc(slices.Clone(some), func(l Life) bool { return !w.lives(l) })
	for _, l := range some {
		if w.does[l] == nil {
			w.does[l] = &doing{make([]uint64, len(w.prefer)), make([]uint64, len(w.prefer))}
		}
		w.report(l)
	}
	plan := w.plan()
	for p, part := range w.view.Partitions {
		if slices.Contains(some, part.Owner) && w.hasHeard(part) {
			w.does[part.Owner].settled[p] = part.Term
		}
		for _, l := range []Life{part.Standby, w.view.Learner(p, plan[p])} {
			if slices.Contains(some, l) && w.lives(part.Owner) && w.does[part.Owner] != nil && w.does[part.Owner].settled[p] == part.Term && w.all().adopted(part.Owner) == w.view.Number {
				w.does[l].complete[p] = w.view.Number
			}
		}
	}
	for _, l := range some {
		w.report(l)
	}
}

// report has a life that has adopted the view report what it does.
func (w *world) report(l Life) {
	r, found := w.reports[l]
	if !found {
		r.Life = l
	}
	does := w.does[l]
	w.reports[l], _ = r.Following(w.view, w.plan(),
		func(p int) bool { return does.settled[p] == w.view.Partitions[p].Term },
		func(p int) bool { return does.complete[p] == w.view.Number })
}

// hasHeard reports whether all predecessors of an owner have given their final states or have ended.
func (w *world) hasHeard(part Partition) bool {
	for _, l := range part.Predecessors {
		gives := w.lives(l) && w.all().adopted(l) >= part.Term
		if slices.Contains(w.farewells, l) {
			continue
		}
		if !gives && (w.lives(l) || !w.view.HaveLeft(part.Term, w.all())) {
			return false
		}
	}
	return true
}

// next writes the next view, and returns what it is.
func (w *world) next() (*View, Urgency) {
	v, urgency := Next(w.view, w.seen(), w.all(), w.plan())
	if v != nil {
		w.view = v
	}
	return v, urgency
}

// format returns a view as lines: the members, and the partitions that differ from those of old.
func format(v, old *View, urgency Urgency) string {
	var b strings.Builder
	fmt.Fprintf(&b, "view %d %s:", v.Number, [...]string{"", "planned", "urgent"}[urgency])
	for _, m := range v.Members {
		fmt.Fprintf(&b, " %s", m.name())
		if m.State != Ready {
			fmt.Fprintf(&b, "/%s", m.State)
		}
	}
	if old != nil && v.Waived != old.Waived {
		fmt.Fprintf(&b, ", without %s", formatLives(v.GivenUp))
	}
	b.WriteByte('\n')
	for p, part := range v.Partitions {
		if old != nil && part.Owner == old.Partitions[p].Owner && part.Standby == old.Partitions[p].Standby {
			continue
		}
		fmt.Fprintf(&b, "  %d: %s, term %d", p, part.Owner.name(), part.Term)
		if part.Standby != (Life{}) {
			fmt.Fprintf(&b, ", standby %s", part.Standby.name())
		}
		if len(part.Predecessors) > 0 {
			fmt.Fprintf(&b, ", after %s", formatLives(part.Predecessors))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func formatLives(lives []Life) string {
	var s []string
	for _, l := range lives {
		s = append(s, l.name())
	}
	return strings.Join(s, " ")
}
