package sim

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// maxRecord is how many entries are kept of one counter, about; older ones go first.
const maxRecord = 64 << 10

// before is how long before what was granted too much the record of it begins that is printed.
const before = 2 * time.Second

// record is what the nodes have decided of each counter, and what has become of its partition: which node has
// decided what, and from what. It is written down in words only for those of which too much was granted.
type record struct {
	mu         sync.Mutex
	keys       map[ring.Key]Key // set before there are nodes
	partitions map[uint32][]Key // likewise
	of         map[Key][]note   // guarded by mu
}

// note is one line of a record: a decision, or else what a node has said of the partition.
type note struct {
	at        time.Duration
	who, what string
	asked     shard.Group
	take      shard.Take
	worth     string
}

func newRecord() *record {
	return &record{keys: make(map[ring.Key]Key), partitions: make(map[uint32][]Key), of: make(map[Key][]note)}
}

// follow has a key recorded.
func (r *record) follow(k Key, as ring.Key, partition uint32) {
	r.keys[as] = k
	r.partitions[partition] = append(r.partitions[partition], k)
}

func (r *record) add(k Key, n note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[k] = append(r.of[k], n)
	if len(r.of[k]) >= maxRecord {
		r.of[k] = slices.Delete(r.of[k], 0, maxRecord/2)
	}
}

// recorder stands between a node and its counters.
type recorder struct {
	cluster.Local
	world *World
	node  *Node
}

// Decide implements cluster.Local.
func (r recorder) Decide(groups []shard.Group) {
	r.Local.Decide(groups)
	for i := range groups {
		for j := range groups[i].Takes {
			r.note("", &groups[i], &groups[i].Takes[j])
		}
	}
}

// Return implements cluster.Local.
func (r recorder) Return(takes []shard.Take) {
	r.Local.Return(takes)
	for i := range takes {
		r.note("returned", &shard.Group{}, &takes[i])
	}
}

func (r recorder) note(what string, g *shard.Group, t *shard.Take) {
	k, known := r.world.record.keys[t.Key]
	if !known || r.node.dead.Load() {
		return
	}
	n := note{at: r.world.now(), who: r.node.ID, what: what, asked: *g, take: *t}
	n.asked.Takes = nil
	if ownership := r.world.ownershipOf(r.node); ownership != nil {
		n.worth = ownership.Worth(r.world.partitions[k])
	}
	r.world.record.add(k, n)
}

// String says what was decided, of whose counters, and how it stands then.
func (n note) String() string {
	if n.take.Cost == 0 && n.take.Key == (ring.Key{}) {
		return n.what
	}
	d, words := n.take.Decision, []string{n.what}
	word := func(when bool, text string) {
		if when {
			words = append(words, text)
		}
	}
	word(n.asked.Provisional, "from a copy if need be:")
	word(n.asked.Peek, "look:")
	word(n.asked.Reset, "reset:")
	word(n.asked.LentAt > 0, "unused lease:")
	word(n.asked.Lend > 0, fmt.Sprintf("lend %d:", n.asked.Lend))
	word(true, fmt.Sprintf("cost %d", n.take.Cost))
	switch n.take.Source {
	case shard.Redirected:
		word(true, "not here")
	case shard.Undecided, shard.Overloaded:
		word(true, "not decided")
	default:
		word(d.Allowed, fmt.Sprintf("allowed by %v, %d remain", sourceName(n.take.Source), d.Remaining))
		word(!d.Allowed, fmt.Sprintf("denied by %v, %d remain", sourceName(n.take.Source), d.Remaining))
		word(d.Allowed && !n.asked.Allowed && n.what == "", "and not taken, as another take was denied")
		word(n.asked.TokenLease.Tokens > 0, fmt.Sprintf("and lent %d", n.asked.TokenLease.Tokens))
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ") + " [" + n.worth + "]"
}

func sourceName(s shard.Source) string {
	switch s {
	case shard.Owner:
		return "owner"
	case shard.Provisional:
		return "copy"
	case shard.Deferred:
		return "owner, deferred"
	case shard.Local:
		return "share"
	}
	return fmt.Sprint(uint8(s))
}

// partition notes what a node has said of a partition.
func (r *record) partition(at time.Duration, who string, p uint32, what string) {
	for _, k := range r.partitions[p] {
		r.add(k, note{at: at, who: who, what: what})
	}
}

// noted is what a node says below the level of what the run log tells, if it is about one partition.
func (h handler) noted(r slog.Record) {
	p, about := uint32(0), false
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "partition" && a.Value.Kind() == slog.KindUint64 {
			p, about = uint32(a.Value.Uint64()), true
		}
		return !about
	})
	if about {
		h.record.partition(h.runLog.now(), h.who, p, said(r))
	}
}

func said(r slog.Record) string {
	var b strings.Builder
	if r.Level > slog.LevelInfo {
		b.WriteString(r.Level.String() + " ")
	}
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	return b.String()
}
