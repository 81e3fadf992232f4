package envoy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules/internal/counter"
)

// Tree holds the descriptors of one domain. It is immutable once it is read.
type Tree struct {
	// Domain is the namespace.
	Domain string
	root   node
	limits int             // Descriptors with a limit
	ids    map[string]bool // of those

	line int    // where the first document begins, 0 if it was not read
	file string // and in which file
}

// Place ends a sentence with where the tree stands, if it was read from a file.
func (t *Tree) Place() string {
	if t.line == 0 {
		return ""
	}
	return fmt.Sprintf(", at %s:%d", t.file, t.line)
}

// Descriptor is a descriptor with a limit.
type Descriptor struct {
	// ID is the descriptors that lead to the limit, with dots between them. No two in a Tree have the same.
	ID string
	// Index counts the limits of a Tree from 0, in the order of the files.
	Index int
	// File, Line and Column are where it was read.
	File         string
	Line, Column int
	// Limit is that of each counter, zero if Unlimited.
	Limit     algorithms.Limit
	Unlimited bool
	// Name is what answers call the limit, and what the Replaces of others refer to. Often
	// empty.
	Name string
	// Replaces are names of limits that do not apply to a request where this one does.
	Replaces []string
	// Requests per Unit is the limit as it is written. Both are 0 if it is unlimited.
	Requests uint32
	Unit     Unit
	// Shadow says that the limit counts and never denies.
	Shadow bool
	// Quota says that the limit denies a request only if all with Quota do.
	Quota bool
	// Metadata is returned for a request that the limit allows. Its values are those that encoding/json
	// decodes into.
	Metadata map[string]any
	// Salt tells counters of the same entries apart.
	Salt       uint64
	metricName string
	varies     bool // with values that are not in the file
	detailed   bool
	spec       Spec // without Descriptors

	// Path are the descriptors that lead to the limit, from the outermost on.
	Path []PathEntry
}

// PathEntry is what an entry of a request must be.
type PathEntry struct {
	// Key is the entry's. Value fits any text where it has a star; an empty one fits any value.
	Key, Value string
	// Each says that each value that fits has a counter of its own.
	Each bool
}

// Spec returns what the file says, without the descriptors below.
func (d *Descriptor) Spec() Spec { return d.spec }

// CountsBy returns the keys of Path whose values choose the counter.
func (d *Descriptor) CountsBy() []string {
	var keys []string
	for _, e := range d.Path {
		if e.Each {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// node is a place in the tree: what is known after some entries.
type node struct {
	key, value string      // as written
	limit      *Descriptor // of a request that has no more entries; nil if there is none
	share      bool        // all values that fit count together
	named      bool        // metrics name the value
	varies     bool        // or that of a parent

	children  map[string]*node // by composite
	wildcards []wildcard       // of the children, in the order of the file
	order     []*node          // the children, likewise

	spec Spec        // without Descriptors
	path []PathEntry // from the root to it
}

// composite is what a descriptor is found by: its key, and behind an underscore its value.
// That "a_b" with "c" and "a" with "b_c" look alike is so in the reference.
func (n *node) composite() string {
	if n.value == "" {
		return n.key
	}
	return n.key + "_" + n.value
}

// wildcard is a composite with stars.
type wildcard struct {
	parts [][]byte // between the stars, at least two
	to    *node
}

// fits says whether text is the parts in their order with anything between them.
func (w *wildcard) fits(text []byte) bool {
	first, last := w.parts[0], w.parts[len(w.parts)-1]
	if len(text) < len(first)+len(last) || !bytes.HasPrefix(text, first) || !bytes.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range w.parts[1 : len(w.parts)-1] {
		i := bytes.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return true
}

// step is where an entry has led to.
type step struct {
	to   *node
	wild bool // by a wildcard
}

// route is where the entries of a request have led to.
type route [maxDepth]step

// next returns the child that an entry leads to: the one of its key and value, else the
// first wildcard that fits, else the one of its key. It is nil if there is none.
func (n *node) next(e *counter.Attribute) step {
	var buf [counter.SmallName]byte
	composite := append(append(append(buf[:0], e.Key...), '_'), e.Value...)
	if to := n.children[string(composite)]; to != nil {
		return step{to: to}
	}
	for i := range n.wildcards {
		if n.wildcards[i].fits(composite) {
			return step{n.wildcards[i].to, true}
		}
	}
	return step{to: n.children[e.Key]}
}

// walk returns the limit that the entries lead to, nil if there is none: the limit of the
// last entry, if there is a descriptor for each.
func (t *Tree) walk(entries []counter.Attribute, r *route) *Descriptor {
	if len(entries) > maxDepth {
		return nil
	}
	at := &t.root
	for i := range entries {
		r[i] = at.next(&entries[i])
		if at = r[i].to; at == nil {
			return nil
		}
	}
	return at.limit
}

// Match returns the limit for the entries of a descriptor in a request, and the key of
// its counter. The limit is nil if there is none, and the key means nothing if it is
// unlimited.
func (t *Tree) Match(h ring.Hasher, entries []counter.Attribute) (*Descriptor, ring.Key) {
	var r route
	d := t.walk(entries, &r)
	if d == nil || d.Unlimited {
		return d, ring.Key{}
	}
	return d, counterKey(h, t.Domain, entries, &r).With(d.Salt)
}

// OverrideKey returns the key of the counter of a limit that a request brings with it.
// It is that of a rule of the same entries and unit, unless that shares one.
func OverrideKey(h ring.Hasher, domain string, entries []counter.Attribute, l algorithms.Limit) ring.Key {
	return counterKey(h, domain, entries, &route{}).With(counter.Salt(l))
}

// counterKey names a counter by the domain, no rule, and the entries: unlike in the
// names of other rules, the second part is empty. Where values count together, the
// pattern stands for them.
func counterKey(h ring.Hasher, domain string, entries []counter.Attribute, r *route) ring.Key {
	var buf [counter.SmallName]byte
	name := counter.AppendText(counter.AppendText(buf[:0], domain), "")
	for i := range entries {
		name = counter.AppendText(name, entries[i].Key)
		if i < len(r) && r[i].wild && r[i].to.share {
			name = counter.AppendText(name, r[i].to.pattern(entries[i].Key))
		} else {
			name = counter.AppendText(name, entries[i].Value)
		}
	}
	return h.Key(name)
}

// pattern returns the value of a wildcard that an entry of that key has met.
func (n *node) pattern(key string) string {
	if n.key == key {
		return n.value
	}
	return strings.TrimPrefix(n.composite(), key+"_")
}

// AppendName appends what metrics call the limit that the entries have led to: the domain
// and the descriptors, behind dots. Values that the file does not have stand there as
// detailed_metric and value_to_metric say.
func (t *Tree) AppendName(b []byte, d *Descriptor, entries []counter.Attribute) []byte {
	if !d.varies {
		return append(b, d.metricName...)
	}
	var r route
	t.walk(entries, &r)
	b = append(b, t.Domain...)
	shared := slices.ContainsFunc(r[:len(entries)], func(s step) bool { return s.wild && s.to.share })
	for i := range entries {
		value := r[i].shown(&entries[i], d.detailed)
		b = append(append(b, '.'), entries[i].Key...)
		if value != "" || d.detailed && !shared {
			b = append(append(b, '_'), value...)
		}
	}
	return b
}

// shown is the value of an entry in the name of its limit.
func (s step) shown(e *counter.Attribute, detailed bool) string {
	switch {
	case s.wild && s.to.share:
		return s.to.pattern(e.Key)
	case detailed || s.to.named:
		return e.Value
	case s.wild:
		return s.to.pattern(e.Key)
	case s.to.value == "":
		return ""
	}
	return e.Value
}
