package rules

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// This file has the rules of envoyproxy/ratelimit: a tree of descriptors per domain,
// through which the entries of a request walk in their order. They are matched as that
// server does it (src/config/config_impl.go, July 2026).

// Lyft says how files of envoyproxy/ratelimit are read. The zero value is as that server
// does by default.
type Lyft struct {
	// Algorithm is what limits count by, 0 for FixedWindow. It is one that takes any limit
	// and that delays nothing: not SlidingWindowLog, nor LeakyBucket.
	Algorithm algorithms.Algorithm
	// Merge permits several documents of one domain, whose descriptors then stand together.
	Merge bool
}

func (how Lyft) algorithm() algorithms.Algorithm {
	if how.Algorithm == 0 {
		return algorithms.FixedWindow
	}
	return how.Algorithm
}

// Limit returns the limit of so many requests per window of so many nanoseconds. What is
// above MaxLimit is held against that.
func (how Lyft) Limit(requests uint32, window int64) algorithms.Limit {
	return algorithms.Limit{
		Algorithm: how.algorithm(),
		Limit:     min(int64(requests), algorithms.MaxLimit),
		Window:    window,
	}
}

// Descriptors are the descriptors of one domain. They are immutable.
type Descriptors struct {
	// Domain is the namespace.
	Domain string
	how    Lyft
	root   descriptor

	line, column int    // where the first document begins
	file         string // and in which file
}

// place ends a sentence with where d stands, if it was read.
func (d *Descriptors) place() string {
	if d.line == 0 {
		return ""
	}
	return fmt.Sprintf(", at %s:%d", d.file, d.line)
}

// Descriptor is what a Rule of envoyproxy/ratelimit has beyond its limit.
type Descriptor struct {
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
	// Metadata is returned for a request that the limit lets through. Its values are those
	// that encoding/json decodes into.
	Metadata map[string]any
	// Salt tells counters of the same entries apart.
	Salt     uint64
	name     string // for metrics
	varies   bool   // with values that are not in the file
	detailed bool
	spec     DescriptorSpec // without Descriptors
}

// descriptor is a place in the tree: what is known after some entries.
type descriptor struct {
	key, value string // as written
	rule       *Rule  // of a request that has no more entries; nil if there is none
	share      bool   // all values that fit count together
	named      bool   // metrics name the value
	varies     bool   // or that of a parent

	children  map[string]*descriptor // by composite
	wildcards []wildcard             // of the children, in the order of the file
	order     []*descriptor          // the children, likewise

	spec DescriptorSpec // without Descriptors
}

// composite is what a descriptor is found by: its key, and behind an underscore its value.
// That "a_b" with "c" and "a" with "b_c" look alike is so in the reference.
func (n *descriptor) composite() string {
	if n.value == "" {
		return n.key
	}
	return n.key + "_" + n.value
}

// wildcard is a composite with stars.
type wildcard struct {
	parts [][]byte // between the stars, at least two
	to    *descriptor
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
	to   *descriptor
	wild bool // by a wildcard
}

// route is where the entries of a request have led to.
type route [maxDepth]step

// next returns the child that an entry leads to: the one of its key and value, else the
// first wildcard that fits, else the one of its key. It is nil if there is none.
func (n *descriptor) next(e *Attribute) step {
	var buf [smallName]byte
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

// walk returns the rule that the entries lead to, nil if there is none: the rule of the
// last entry, if there is a descriptor for each.
func (d *Descriptors) walk(entries []Attribute, r *route) *Rule {
	if len(entries) > maxDepth {
		return nil
	}
	at := &d.root
	for i := range entries {
		r[i] = at.next(&entries[i])
		if at = r[i].to; at == nil {
			return nil
		}
	}
	return at.rule
}

// Match returns the rule for the entries of a descriptor in a request, and the key of
// its counter. The rule is nil if there is none, and the key means nothing if it is
// unlimited.
func (d *Descriptors) Match(h ring.Hasher, entries []Attribute) (*Rule, ring.Key) {
	var r route
	rule := d.walk(entries, &r)
	if rule == nil || rule.Unlimited {
		return rule, ring.Key{}
	}
	return rule, counterKey(h, d.Domain, entries, &r).With(rule.Descriptor.Salt)
}

// OverrideKey returns the key of the counter of a limit that a request brings with it.
// It is that of a rule of the same entries and unit, unless that shares one.
func OverrideKey(h ring.Hasher, domain string, entries []Attribute, l algorithms.Limit) ring.Key {
	return counterKey(h, domain, entries, &route{}).With(salt(l))
}

// counterKey names a counter by the domain, no rule, and the entries: unlike in the
// names of other rules, the second part is empty. Where values count together, the
// pattern stands for them.
func counterKey(h ring.Hasher, domain string, entries []Attribute, r *route) ring.Key {
	var buf [smallName]byte
	name := appendText(appendText(buf[:0], domain), "")
	for i := range entries {
		name = appendText(name, entries[i].Key)
		if i < len(r) && r[i].wild && r[i].to.share {
			name = appendText(name, r[i].to.pattern(entries[i].Key))
		} else {
			name = appendText(name, entries[i].Value)
		}
	}
	return h.Key(name)
}

// pattern returns the value of a wildcard that an entry of that key has met.
func (n *descriptor) pattern(key string) string {
	if n.key == key {
		return n.value
	}
	return strings.TrimPrefix(n.composite(), key+"_")
}

// AppendName appends what metrics call the rule that the entries have led to: the domain
// and the descriptors, behind dots. Values that the file does not have stand there as
// detailed_metric and value_to_metric say.
func (d *Descriptors) AppendName(b []byte, rule *Rule, entries []Attribute) []byte {
	if !rule.Descriptor.varies {
		return append(b, rule.Descriptor.name...)
	}
	var r route
	d.walk(entries, &r)
	b = append(b, d.Domain...)
	shared := slices.ContainsFunc(r[:len(entries)], func(s step) bool { return s.wild && s.to.share })
	for i := range entries {
		value := r[i].shown(&entries[i], rule.Descriptor.detailed)
		b = append(append(b, '.'), entries[i].Key...)
		if value != "" || rule.Descriptor.detailed && !shared {
			b = append(append(b, '_'), value...)
		}
	}
	return b
}

// shown is the value of an entry in the name of its rule.
func (s step) shown(e *Attribute, detailed bool) string {
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

// describe takes over the descriptors, whose rules are among those of s.
func (s *Set) describe(how Lyft, descriptors map[string]*Descriptors) {
	s.how, s.descriptors = how, descriptors
	s.revision = revision(s.rules, how, s.describedDocuments())
}

// describedDocuments returns the documents of envoyproxy/ratelimit, by domain.
func (s *Set) describedDocuments() []Document {
	var docs []Document
	for _, domain := range slices.Sorted(maps.Keys(s.descriptors)) {
		docs = append(docs, Document{Domain: domain, Descriptors: s.descriptors[domain].root.specs()})
	}
	return docs
}

// DescriptorFiles returns the domains with descriptors, each as a file: all of them, or
// the one domain.
func (s *Set) DescriptorFiles(domain string) ([]string, error) {
	var files []string
	for _, doc := range s.describedDocuments() {
		if domain != "" && doc.Domain != domain {
			continue
		}
		text, err := Format([]Document{doc})
		if err != nil {
			return nil, err
		}
		files = append(files, string(text))
	}
	return files, nil
}

// Descriptors returns those of a domain, nil if it has none.
func (s *Set) Descriptors(domain string) *Descriptors { return s.descriptors[domain] }

// HasDomain reports whether there are rules of that domain.
func (s *Set) HasDomain(domain string) bool {
	return s.domains[domain] != nil || s.descriptors[domain] != nil
}

// Lyft returns how files of envoyproxy/ratelimit were read.
func (s *Set) Lyft() Lyft { return s.how }

// Warnings are what is odd about the files, but no reason to refuse them.
func (s *Set) Warnings() []Problem { return s.warnings }
