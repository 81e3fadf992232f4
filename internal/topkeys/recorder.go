package topkeys

import (
	"sync"
	"time"
)

// Groups is how many groups of rules have lists of their own. Up to as many rules share none.
const Groups = 16

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
