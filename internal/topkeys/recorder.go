package topkeys

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
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

// Groups is how many groups of rules have lists of their own. Up to as many rules share none.
const Groups = 16

// maxListed is how many keys a List has at most.
const maxListed = 1024

// Recorder holds the lists of a node. It is safe for concurrent use; make it with NewRecorder.
type Recorder struct {
	start  time.Time
	groups [Groups]groupLists
	budget budget
	value  func(key, value string) string // what is kept of a value; nil: the value

	mu   sync.Mutex
	of   map[Name]int // the groups of the rules in force; guarded by mu
	next int          // the group of the next new rule; guarded by mu
}

// groupLists are the lists of some rules.
type groupLists struct {
	mu     sync.Mutex
	orders [orders]history // guarded by mu
}

// NewRecorder returns empty lists. Of each value is kept what the function returns, or the value if it is nil.
func NewRecorder(value func(key, value string) string) *Recorder {
	return &Recorder{start: time.Now(), value: value}
}

// now is how long the recorder has been there.
func (r *Recorder) now() time.Duration { return time.Since(r.start) }

// At returns an instant as its time since the recorder was made, which is what RenewEvery is added to.
func (r *Recorder) At(t time.Time) time.Duration { return t.Sub(r.start) }

// Assign gives each rule in force a group. Rules that stay keep theirs.
func (r *Recorder) Assign(rules []Name) []*Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.of
	r.of = make(map[Name]int, len(rules))
	groups := make([]*Group, len(rules))
	for i, name := range rules {
		g, known := old[name]
		if !known {
			g, r.next = r.next, (r.next+1)%Groups
		}
		r.of[name] = g
		groups[i] = &Group{r: r, lists: &r.groups[g], rule: &name} // not &rules[i], which would keep all names alive
	}
	return groups
}

// Group is where the events of a rule are recorded.
type Group struct {
	r     *Recorder
	lists *groupLists
	rule  *Name
}

// Event is one check that was drawn.
type Event struct {
	// ID is the number of the key, the same on all nodes.
	ID uint64
	// Outcome is Denied or WouldDeny, or Checks if it was neither.
	Outcome Order
	// Source has the key's attributes. It is asked at most twice, if the key is new.
	Source Source
}

// Source returns the attributes of a key.
type Source interface{ KeyAttributes() []Attribute }

// record counts an event, as 1<<shift of its kind.
func (g *Group) record(e Event, shift uint8) {
	number := int64(g.r.now() / interval)
	weight := uint64(1) << shift
	variance := float64(weight) * float64(weight-1) // of a Horvitz-Thompson estimate: (1-p)/p² for each event
	g.lists.mu.Lock()
	defer g.lists.mu.Unlock()
	text := ""
	for _, o := range [...]Order{Checks, e.Outcome} {
		h := &g.lists.orders[o]
		h.advance(number)
		if text == "" && !h.current.find(e.ID) {
			text = g.r.encode(e.Source.KeyAttributes())
		}
		h.current.add(e.ID, g.rule, text, weight, variance)
		if e.Outcome == Checks {
			return
		}
	}
}

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

// Bounds of how many events are recorded in a second: of one rule and outcome, and of a node.
const (
	perRule = 512
	perNode = 8192
)

// budget makes draws rarer while a node records more than perNode events in a second.
type budget struct {
	shift atomic.Uint32
	spent atomic.Uint32 // in the second
	until atomic.Int64  // its end, as Recorder.now
}

const maxShift = 24 // of a draw, with that of the budget

// spend counts a recorded event.
func (b *budget) spend(now time.Duration) {
	if until := b.until.Load(); int64(now) >= until {
		if b.until.CompareAndSwap(until, int64(now+time.Second)) {
			if spent := b.spent.Swap(0); spent < perNode/4 {
				if s := b.shift.Load(); s > 0 {
					b.shift.CompareAndSwap(s, s-1)
				}
			}
		}
	}
	if b.spent.Add(1) >= perNode {
		if s := b.shift.Load(); s < maxShift/2 && b.shift.CompareAndSwap(s, s+1) {
			b.spent.Store(0)
		}
	}
}
