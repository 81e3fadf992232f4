package envoy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/rules/internal/counter"
	"github.com/weirlimit/weir/rules/internal/problem"
	"github.com/weirlimit/weir/rules/internal/yamlnode"
)

// Reader reads documents, with the problems and warnings that they have. What that server refuses is refused,
// in its words and with the place; what it passes over in silence is a warning.
type Reader struct {
	options  Options
	problems *problem.List
	warnings *problem.List
	hint     func(files ...string) string

	trees  map[string]*Tree // by domain
	file   string           // that is being read
	found  []*Descriptor    // in the document that is being read
	nodes  int              // descriptors, and values of their metadata
	visits int              // elements of mappings and lists that were read for them
}

// NewReader returns a Reader of all documents of a set. The hint ends the problem that two files have one
// domain.
func NewReader(options Options, problems, warnings *problem.List, hint func(files ...string) string) *Reader {
	return &Reader{options: options, problems: problems, warnings: warnings, hint: hint, trees: make(map[string]*Tree)}
}

// Tree returns the descriptors of a domain as read so far, nil if it has none.
func (d *Reader) Tree(domain string) *Tree { return d.trees[domain] }

// Document reads one document of a file. It returns the tree of its domain, nil if that has a problem, and the
// limits that it has added to the tree.
func (d *Reader) Document(file string, n *yaml.Node, at problem.Path) (*Tree, []*Descriptor) {
	d.file, d.found = file, nil
	return d.document(n, at), d.found
}

// IsDocument reports whether a document is of this format: it has descriptors, or something like it, and no
// rules. With alone, so is a document that has neither.
func IsDocument(n *yaml.Node, alone bool) bool {
	found := alone && n.Kind == yaml.MappingNode
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		switch key := n.Content[i].Value; {
		case key == "rules":
			return false
		case problem.Nearest(key, []string{"descriptors"}) != "":
			found = true
		}
	}
	return found
}

// field is one key that a mapping may have.
type field[T any] struct {
	name string
	read func(d *Reader, n *yaml.Node, at problem.Path, into *T)
}

// documentFields, descriptorFields and rateLimitFields are the keys of the three kinds
// of mappings. There is no other, but in metadata.
var documentFields = []field[documentReader]{
	{"domain", func(d *Reader, n *yaml.Node, at problem.Path, r *documentReader) {
		r.domain = d.leaf(n, at)
		switch {
		case r.domain == "":
			d.problem(n, at, "config file cannot have empty domain")
		case len(r.domain) > maxText:
			d.problem(n, at, "%s has %d bytes, more than %d", problem.Quote(r.domain), len(r.domain), maxText)
		}
	}},
	{"descriptors", func(_ *Reader, n *yaml.Node, at problem.Path, r *documentReader) { r.list, r.at = n, at }},
}

// documentReader is a document that is being read.
type documentReader struct {
	domain string
	list   *yaml.Node // of descriptors, nil if there is none
	at     problem.Path
}

// descriptorReader is a descriptor that is being read.
type descriptorReader struct {
	spec               Spec
	key, unitNode, all *yaml.Node // of the key, the unit, and descriptors
	unit               Unit
	hasRequests        bool
}

var descriptorFields = []field[descriptorReader]{
	{"key", func(d *Reader, n *yaml.Node, at problem.Path, r *descriptorReader) {
		r.key, r.spec.Key = n, d.bounded(n, at)
	}},
	{"value", func(d *Reader, n *yaml.Node, at problem.Path, r *descriptorReader) { r.spec.Value = d.bounded(n, at) }},
	{"rate_limit", (*Reader).rateLimit},
	{"shadow_mode", flag(func(s *Spec) *bool { return &s.ShadowMode })},
	{"quota_mode", flag(func(s *Spec) *bool { return &s.QuotaMode })},
	{"detailed_metric", flag(func(s *Spec) *bool { return &s.DetailedMetric })},
	{"value_to_metric", flag(func(s *Spec) *bool { return &s.ValueToMetric })},
	{"share_threshold", flag(func(s *Spec) *bool { return &s.ShareThreshold })},
	{"metadata", func(d *Reader, n *yaml.Node, at problem.Path, r *descriptorReader) {
		r.spec.Metadata = d.metadata(n, at)
	}},
	{"descriptors", func(_ *Reader, n *yaml.Node, _ problem.Path, r *descriptorReader) { r.all = n }},
}

func flag(of func(*Spec) *bool) func(*Reader, *yaml.Node, problem.Path, *descriptorReader) {
	return func(d *Reader, n *yaml.Node, at problem.Path, r *descriptorReader) { *of(&r.spec) = d.yesNo(n, at) }
}

var rateLimitFields = []field[descriptorReader]{
	{"unit", func(d *Reader, n *yaml.Node, at problem.Path, r *descriptorReader) {
		r.unitNode, r.spec.RateLimit.Unit = n, d.leaf(n, at)
	}},
	{"requests_per_unit", func(d *Reader, n *yaml.Node, at problem.Path, r *descriptorReader) {
		r.spec.RateLimit.RequestsPerUnit, r.hasRequests = d.uint32(n, at), true
	}},
	{"unlimited", func(d *Reader, n *yaml.Node, at problem.Path, r *descriptorReader) {
		r.spec.RateLimit.Unlimited = d.yesNo(n, at)
	}},
	{"name", func(d *Reader, n *yaml.Node, at problem.Path, r *descriptorReader) {
		r.spec.RateLimit.Name = d.bounded(n, at)
	}},
	{"replaces", func(d *Reader, n *yaml.Node, at problem.Path, r *descriptorReader) {
		r.spec.RateLimit.Replaces = nil
		d.mappings(n, at, func(n *yaml.Node, at problem.Path) {
			var name string
			lenient(d, n, at, replaceFields, &name)
			if name == "" {
				d.problem(n, at, "should not have an empty replaces entry; write {name: NAME}")
			}
			r.spec.RateLimit.Replaces = append(r.spec.RateLimit.Replaces, name)
		})
	}},
}

var replaceFields = []field[string]{
	{"name", func(d *Reader, n *yaml.Node, at problem.Path, name *string) { *name = d.bounded(n, at) }},
}

// formatKeys are all keys of the format, and where they belong. The reference accepts each of
// them in any mapping, and reads it only there.
var formatKeys = map[string]string{
	"domain": "the document", "descriptors": "the document or a descriptor",
	"key": "a descriptor", "value": "a descriptor", "rate_limit": "a descriptor", "shadow_mode": "a descriptor",
	"quota_mode": "a descriptor", "detailed_metric": "a descriptor", "value_to_metric": "a descriptor",
	"share_threshold": "a descriptor", "metadata": "a descriptor",
	"unit": "rate_limit", "requests_per_unit": "rate_limit", "unlimited": "rate_limit", "replaces": "rate_limit",
	"name": "rate_limit",
}

// lenient reads a mapping that has these keys. Other keys of the format are warnings, and
// so is a key that stands there twice, of which the last counts.
func lenient[T any](d *Reader, n *yaml.Node, at problem.Path, known []field[T], into *T) bool {
	n = d.follow(n)
	if !d.isMapping(n, at) {
		return false
	}
	lines := make(map[string]int)
	for _, p := range d.pairs(n, at, 0) {
		name := p.key.Value
		i := slices.IndexFunc(known, func(f field[T]) bool { return f.name == name })
		switch {
		case p.key.Kind != yaml.ScalarNode || p.key.Tag != "!!str":
			d.problem(p.key, at, "config error, key is not of type string: %s", problem.Quote(name))
			continue
		case i < 0 && formatKeys[name] != "":
			d.warn(p.key, at, "%s is ignored here, as it belongs to %s", problem.Quote(name), formatKeys[name])
			continue
		case i < 0:
			d.unknownKey(p.key, at, name)
			continue
		case lines[name] > 0 && !p.merged:
			d.warn(p.key, at, "key %s stands here twice, first in line %d; the last one counts", problem.Quote(name), lines[name])
		}
		lines[name] = p.key.Line
		known[i].read(d, d.follow(p.value), at.Key(name), into)
	}
	return true
}

func (d *Reader) unknownKey(n *yaml.Node, at problem.Path, name string) {
	names := slices.Sorted(maps.Keys(formatKeys))
	hint := "; known are " + strings.Join(names, ", ")
	if near := problem.Nearest(name, names); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", problem.Quote(near))
	}
	d.problem(n, at, "config error, unknown key %s%s", problem.Quote(name), hint)
}

// problem notes a reason to refuse the file.
func (d *Reader) problem(n *yaml.Node, at problem.Path, format string, args ...any) {
	d.problems.Add(problem.At(d.file, n, at, format, args...))
}

// warn notes what is odd, but no reason to refuse the file.
func (d *Reader) warn(n *yaml.Node, at problem.Path, format string, args ...any) {
	d.warnings.Add(problem.At(d.file, n, at, format, args...))
}

// document reads one document into the tree of its domain.
func (d *Reader) document(n *yaml.Node, at problem.Path) *Tree {
	var r documentReader
	lenient(d, n, at, documentFields, &r)
	if yamlnode.ValueOf(n, "domain") == nil {
		d.problem(n, at.Key("domain"), "config file cannot have empty domain")
	}
	if r.domain == "" {
		return nil
	}
	tree := d.trees[r.domain]
	switch {
	case tree == nil:
		tree = &Tree{Domain: r.domain, ids: make(map[string]bool), file: d.file, line: n.Line}
		d.trees[r.domain] = tree
	case !d.options.Merge:
		d.problem(n, at.Key("domain"), "duplicate domain %s in config file, first at %s:%d; to put them together, see merge-domains%s",
			problem.Quote(r.domain), tree.file, tree.line, d.hint(d.file, tree.file))
		return tree
	}
	if r.list != nil {
		d.children(r.list, r.at, tree, &tree.root, "", 1)
	}
	return tree
}

// children reads a list of descriptors, which stand behind the composites in prefix.
func (d *Reader) children(n *yaml.Node, at problem.Path, tree *Tree, parent *node, prefix string, depth int) {
	if depth > maxDepth {
		d.problem(n, at, "the descriptors stand one in the other more than %d deep, and no request has so many entries", maxDepth)
		return
	}
	d.mappings(n, at, func(n *yaml.Node, at problem.Path) {
		if d.nodes++; d.nodes > maxNodes {
			if d.nodes == maxNodes+1 {
				d.problem(n, at, "is one more than the %d descriptors that a set may have", maxNodes)
			}
			return
		}
		d.descriptor(n, at, tree, parent, prefix, depth)
	})
}

// descriptor reads one descriptor, and puts it under its parent.
func (d *Reader) descriptor(n *yaml.Node, at problem.Path, tree *Tree, parent *node, prefix string, depth int) {
	var r descriptorReader
	if name := d.nameOf(n); name != "" {
		at = problem.Path{Rule: prefix + name}
	}
	lenient(d, n, at, descriptorFields, &r)
	if r.spec.Key == "" {
		d.problem(cmp.Or(r.key, n), at.Key("key"), "descriptor has empty key")
		return
	}
	child := &node{
		key: r.spec.Key, value: r.spec.Value, share: r.spec.ShareThreshold, named: r.spec.ValueToMetric,
		varies: parent.varies || r.spec.ValueToMetric, spec: r.spec,
	}
	each := child.value == "" || strings.Contains(child.value, "*") && !child.share
	child.path = append(slices.Clip(parent.path), PathEntry{child.key, child.value, each})
	composite := child.composite()
	if parent.children[composite] != nil {
		d.problem(n, at, "duplicate descriptor composite key %s", problem.Quote(prefix+composite))
		return
	}
	if child.share && !strings.Contains(composite, "*") {
		d.problem(n, at.Key("share_threshold"), "share_threshold can only be used with wildcard values (containing '*'), but found key %s", problem.Quote(composite))
	}
	parent.add(child)
	if r.spec.RateLimit != nil {
		child.limit = d.limit(n, at, tree, &r, prefix+composite)
		child.limit.varies = child.varies || r.spec.DetailedMetric
		child.limit.Path = child.path
	}
	if r.all != nil {
		d.children(r.all, problem.Path{Rule: prefix + composite, Field: "descriptors"}, tree, child, prefix+composite+".", depth+1)
	}
}

// nameOf looks ahead for what messages call a descriptor.
func (d *Reader) nameOf(n *yaml.Node) string {
	text := func(key string) string {
		v := yamlnode.ValueOf(n, key)
		if v == nil {
			return ""
		}
		if v = d.follow(v); yamlnode.IsNull(v) {
			return ""
		}
		return v.Value
	}
	c := node{key: text("key"), value: text("value")}
	if c.key == "" {
		return ""
	}
	return c.composite()
}

// add puts child behind its siblings.
func (n *node) add(child *node) {
	composite := child.composite()
	if n.children == nil {
		n.children = make(map[string]*node)
	}
	n.children[composite] = child
	n.order = append(n.order, child)
	if parts := strings.Split(composite, "*"); len(parts) > 1 {
		w := wildcard{to: child}
		for _, part := range parts {
			w.parts = append(w.parts, []byte(part))
		}
		n.wildcards = append(n.wildcards, w)
	}
}

// rateLimit reads the limit of a descriptor.
func (d *Reader) rateLimit(n *yaml.Node, at problem.Path, r *descriptorReader) {
	if yamlnode.IsNull(n) {
		return
	}
	r.spec.RateLimit = new(RateLimitSpec)
	if !lenient(d, n, at, rateLimitFields, r) {
		return
	}
	l := r.spec.RateLimit
	r.unit = ParseUnit(l.Unit)
	valid := r.unit != 0
	switch {
	case l.Unlimited && valid:
		d.problem(n, at, "should not specify rate limit unit when unlimited")
	case l.Unlimited:
		l.Unit, l.RequestsPerUnit = "", 0
	case !valid:
		d.problem(cmp.Or(r.unitNode, n), at.Key("unit"), "invalid rate limit unit %s; known are %s", problem.Quote(l.Unit), strings.Join(unitNames[Second:], ", "))
	case !r.hasRequests:
		d.warn(n, at, "requests_per_unit is missing, and so 0: every request is denied")
	}
	if valid {
		l.Unit = r.unit.String()
	}
	if l.Name != "" && slices.Contains(l.Replaces, l.Name) {
		d.problem(n, at.Key("replaces"), "replaces should not contain name of same descriptor: %s", problem.Quote(l.Name))
	}
}

// limit makes the Descriptor of a limit, and takes it in.
func (d *Reader) limit(n *yaml.Node, at problem.Path, tree *Tree, r *descriptorReader, id string) *Descriptor {
	l := r.spec.RateLimit
	found := &Descriptor{
		ID: id, Index: tree.limits, File: d.file, Line: n.Line, Column: n.Column, Unlimited: l.Unlimited,
		Name: l.Name, Replaces: l.Replaces, Shadow: r.spec.ShadowMode, Quota: r.spec.QuotaMode,
		Metadata: r.spec.Metadata, detailed: r.spec.DetailedMetric, metricName: tree.Domain + "." + id,
		Requests: l.RequestsPerUnit, Unit: r.unit, spec: r.spec,
	}
	if !l.Unlimited && r.unit != 0 {
		found.Limit = d.options.Limit(l.RequestsPerUnit, r.unit.Window())
		if err := found.Limit.Validate(); err != nil {
			d.problem(n, at.Key("rate_limit"), "%v", err)
		}
		found.Salt = counter.Salt(found.Limit)
	}
	for i := 2; tree.ids[found.ID]; i++ { // a dot may be part of a key
		found.ID = fmt.Sprintf("%s~%d", id, i)
	}
	tree.ids[found.ID] = true
	tree.limits++
	d.found = append(d.found, found)
	return found
}
