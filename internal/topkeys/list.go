package topkeys

import (
	"cmp"
	"slices"
)

// Order is what a list is sorted by.
type Order int

// The orders of lists.
const (
	Checks    Order = iota
	Denied          // checks that a limit of the rule denied
	WouldDeny       // checks that a limit of the rule would have denied, were it enforced
	orders          // how many there are
)

// OrderNames are the orders as texts, in their order.
var OrderNames = []string{"checks", "denied", "would_deny"}

// Window is the time that is counted.
type Window int

// The windows of lists.
const (
	Minute Window = iota
	Hour
	windows // how many there are
)

// WindowNames are the windows as texts, in their order.
var WindowNames = []string{"1m", "1h"}

// maxListed is how many keys a List has at most.
const maxListed = 1024

// Key is a key of a List.
type Key struct {
	ID   uint64
	Rule Name
	// Text has the key's attributes, as Attributes reads them.
	Text string
	// Least is what was counted for certain, Most what there can have been at most. Variance is that of Least by sampling.
	Least, Most uint64
	Variance    float64
}

// List is a list of one node, or of several.
type List struct {
	Keys []Key
	// Unlisted is the most that a key without an entry has, by rule; of rules that are not there, Others.
	Unlisted map[Name]uint64
	Others   uint64
	// Seconds says how many the list goes back.
	Seconds uint32
}

// Query says which list is asked for. An empty domain means all, an empty rule all of the domain.
type Query struct {
	Order        Order
	Window       Window
	Domain, Rule string
}

// Valid reports whether the query's order and window exist.
func (q Query) Valid() bool {
	return q.Order >= 0 && q.Order < orders && q.Window >= 0 && q.Window < windows
}

func (q Query) has(n Name) bool {
	return (q.Domain == "" || q.Domain == n.Domain) && (q.Rule == "" || q.Rule == n.ID)
}

// List returns a list of this node.
func (r *Recorder) List(q Query) *List {
	now := r.now()
	l := &List{Unlisted: make(map[Name]uint64), Seconds: secondsOf(q.Window, now)}
	r.mu.Lock()
	of := r.of // which is replaced, never changed
	r.mu.Unlock()
	var unlisted [Groups]uint64
	for i := range r.groups {
		g := &r.groups[i]
		g.mu.Lock()
		parts := g.orders[q.Order].over(q.Window, int64(now/interval))
		g.mu.Unlock()
		f := mergeAll(parts) // without the lock, for which checks wait
		unlisted[i] = f.unlisted
		for _, e := range f.entries {
			if q.has(*e.rule) {
				l.Keys = append(l.Keys, Key{e.id, *e.rule, e.text, e.least, e.most, e.variance})
			}
		}
	}
	for name, g := range of {
		if q.has(name) {
			l.Others = max(l.Others, unlisted[g])
			if len(l.Unlisted) < maxListed {
				l.Unlisted[name] = unlisted[g]
			}
		}
	}
	l.cut(maxListed)
	return l
}

// sort puts the keys with the most that is certain first.
func (l *List) sort() {
	slices.SortFunc(l.Keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Least, a.Least), cmp.Compare(b.Most, a.Most), cmp.Compare(a.ID, b.ID))
	})
}

// cut sorts the list, and drops the keys after the first most ones.
func (l *List) cut(most int) {
	l.sort()
	if len(l.Keys) <= most {
		return
	}
	for _, k := range l.Keys[most:] {
		if n, known := l.Unlisted[k.Rule]; known {
			l.Unlisted[k.Rule] = max(n, k.Most)
		}
		l.Others = max(l.Others, k.Most)
	}
	l.Keys = slices.Clone(l.Keys[:most])
}

func (l *List) unlisted(n Name) uint64 {
	if most, known := l.Unlisted[n]; known {
		return most
	}
	return l.Others
}

// Merge adds up the lists of several nodes. The sum has at most most keys, and its Unlisted is empty.
func Merge(lists []*List, most int) *List {
	sum := &List{}
	type id struct {
		Name
		id uint64
	}
	index := make(map[id]int)
	for _, l := range lists {
		sum.Seconds = max(sum.Seconds, l.Seconds)
		for _, k := range l.Keys {
			if _, found := index[id{k.Rule, k.ID}]; !found {
				index[id{k.Rule, k.ID}] = len(sum.Keys)
				sum.Keys = append(sum.Keys, Key{ID: k.ID, Rule: k.Rule, Text: k.Text})
			}
		}
	}
	for _, l := range lists {
		listed := make(map[int]bool, len(l.Keys))
		for _, k := range l.Keys {
			i := index[id{k.Rule, k.ID}]
			s := &sum.Keys[i]
			s.Least, s.Most, s.Variance = s.Least+k.Least, s.Most+k.Most, s.Variance+k.Variance
			listed[i] = true
		}
		for i := range sum.Keys {
			if !listed[i] {
				sum.Keys[i].Most += l.unlisted(sum.Keys[i].Rule)
			}
		}
		unlisted := l.Others
		for _, n := range l.Unlisted {
			unlisted = max(unlisted, n)
		}
		sum.Others += unlisted
	}
	sum.cut(most)
	return sum
}
