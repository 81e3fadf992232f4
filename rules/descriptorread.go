package rules

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir/algorithms"
)

// This file reads the files of envoyproxy/ratelimit. What that server refuses is refused,
// in its words and with the place; what it passes over in silence is a warning. Its
// parser reads YAML 1.1 and follows aliases and merge keys, so these are followed here.

// isDescriptors says whether a document is one of envoyproxy/ratelimit: it has
// descriptors, or something like it, and no rules.
func isDescriptors(n *yaml.Node) bool {
	found := false
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		switch key := n.Content[i].Value; {
		case key == "rules":
			return false
		case nearest(key, []string{"descriptors"}) != "":
			found = true
		}
	}
	return found
}

// descriptorsFields, descriptorFields and rateLimitFields are the keys of the three kinds
// of mappings. There is no other, but in metadata.
var descriptorsFields = []field[descriptorsReader]{
	{"domain", true, func(d *decoder, n *yaml.Node, at path, r *descriptorsReader) {
		r.domain = d.leaf(n, at)
		switch {
		case r.domain == "":
			d.problem(n, at, "config file cannot have empty domain")
		case len(r.domain) > maxLyftText:
			d.problem(n, at, "%s has %d bytes, more than %d", quote(r.domain), len(r.domain), maxLyftText)
		}
	}},
	{"descriptors", false, func(_ *decoder, n *yaml.Node, at path, r *descriptorsReader) { r.list, r.at = n, at }},
}

// descriptorsReader is a document that is being read.
type descriptorsReader struct {
	domain string
	list   *yaml.Node // of descriptors, nil if there is none
	at     path
}

// descriptorReader is a descriptor that is being read.
type descriptorReader struct {
	spec               DescriptorSpec
	key, unitNode, all *yaml.Node // of the key, the unit, and descriptors
	unit               Unit
	hasRequests        bool
}

var descriptorFields = []field[descriptorReader]{
	{"key", false, func(d *decoder, n *yaml.Node, at path, r *descriptorReader) {
		r.key, r.spec.Key = n, d.bounded(n, at)
	}},
	{"value", false, func(d *decoder, n *yaml.Node, at path, r *descriptorReader) { r.spec.Value = d.bounded(n, at) }},
	{"rate_limit", false, (*decoder).rateLimit},
	{"shadow_mode", false, flag(func(s *DescriptorSpec) *bool { return &s.ShadowMode })},
	{"quota_mode", false, flag(func(s *DescriptorSpec) *bool { return &s.QuotaMode })},
	{"detailed_metric", false, flag(func(s *DescriptorSpec) *bool { return &s.DetailedMetric })},
	{"value_to_metric", false, flag(func(s *DescriptorSpec) *bool { return &s.ValueToMetric })},
	{"share_threshold", false, flag(func(s *DescriptorSpec) *bool { return &s.ShareThreshold })},
	{"metadata", false, func(d *decoder, n *yaml.Node, at path, r *descriptorReader) { r.spec.Metadata = d.metadata(n, at) }},
	{"descriptors", false, func(_ *decoder, n *yaml.Node, _ path, r *descriptorReader) { r.all = n }},
}

func flag(of func(*DescriptorSpec) *bool) func(*decoder, *yaml.Node, path, *descriptorReader) {
	return func(d *decoder, n *yaml.Node, at path, r *descriptorReader) { *of(&r.spec) = d.yesNo(n, at) }
}

var rateLimitFields = []field[descriptorReader]{
	{"unit", false, func(d *decoder, n *yaml.Node, at path, r *descriptorReader) {
		r.unitNode, r.spec.RateLimit.Unit = n, d.leaf(n, at)
	}},
	{"requests_per_unit", false, func(d *decoder, n *yaml.Node, at path, r *descriptorReader) {
		r.spec.RateLimit.RequestsPerUnit, r.hasRequests = d.uint32(n, at), true
	}},
	{"unlimited", false, func(d *decoder, n *yaml.Node, at path, r *descriptorReader) {
		r.spec.RateLimit.Unlimited = d.yesNo(n, at)
	}},
	{"name", false, func(d *decoder, n *yaml.Node, at path, r *descriptorReader) {
		r.spec.RateLimit.Name = d.bounded(n, at)
	}},
	{"replaces", false, func(d *decoder, n *yaml.Node, at path, r *descriptorReader) {
		r.spec.RateLimit.Replaces = nil
		d.mappings(n, at, func(n *yaml.Node, at path) {
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
	{"name", false, func(d *decoder, n *yaml.Node, at path, name *string) { *name = d.bounded(n, at) }},
}

// lyftKeys are all keys of the format, and where they belong. The reference accepts each of
// them in any mapping, and reads it only there.
var lyftKeys = map[string]string{
	"domain": "the document", "descriptors": "the document or a descriptor",
	"key": "a descriptor", "value": "a descriptor", "rate_limit": "a descriptor", "shadow_mode": "a descriptor",
	"quota_mode": "a descriptor", "detailed_metric": "a descriptor", "value_to_metric": "a descriptor",
	"share_threshold": "a descriptor", "metadata": "a descriptor",
	"unit": "rate_limit", "requests_per_unit": "rate_limit", "unlimited": "rate_limit", "replaces": "rate_limit",
	"name": "rate_limit",
}

// lenient reads a mapping that has these keys. Other keys of the format are warnings, and
// so is a key that stands there twice, of which the last counts.
func lenient[T any](d *decoder, n *yaml.Node, at path, known []field[T], into *T) bool {
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
			d.problem(p.key, at, "config error, key is not of type string: %s", quote(name))
			continue
		case i < 0 && lyftKeys[name] != "":
			d.warn(p.key, at, "%s is ignored here, as it belongs to %s", quote(name), lyftKeys[name])
			continue
		case i < 0:
			d.unknownKey(p.key, at, name)
			continue
		case lines[name] > 0 && !p.merged:
			d.warn(p.key, at, "key %s stands here twice, first in line %d; the last one counts", quote(name), lines[name])
		}
		lines[name] = p.key.Line
		known[i].read(d, d.follow(p.value), at.key(name), into)
	}
	return true
}

func (d *decoder) unknownKey(n *yaml.Node, at path, name string) {
	names := slices.Sorted(maps.Keys(lyftKeys))
	hint := "; known are " + strings.Join(names, ", ")
	if near := nearest(name, names); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", quote(near))
	}
	d.problem(n, at, "config error, unknown key %s%s", quote(name), hint)
}

// warn notes what is odd, but no reason to refuse the file.
func (d *decoder) warn(n *yaml.Node, at path, format string, args ...any) {
	d.warnings.add(d.at(n, at, format, args...))
}

// follow returns what n stands for.
func (d *decoder) follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func (d *decoder) isMapping(n *yaml.Node, at path) bool {
	if n.Kind == yaml.MappingNode {
		return true
	}
	what := quote(n.Value)
	if n.Kind == yaml.SequenceNode {
		what = "a list"
	}
	d.problem(n, at, "config error, yaml file contains %s instead of a mapping", what)
	return false
}

// mappings calls each for the elements of a list of mappings, or of nothing.
func (d *decoder) mappings(n *yaml.Node, at path, each func(n *yaml.Node, at path)) {
	if n = d.follow(n); isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.problem(n, at, "is not a list")
		return
	}
	if !d.visit(len(n.Content), n, at) {
		return
	}
	for i, e := range n.Content {
		if d.visits > maxVisits {
			return
		}
		if e = d.follow(e); e.Kind != yaml.MappingNode {
			d.visits += 100 // to tell of it costs more
			d.problem(e, at.index(i), "config error, yaml file contains list of type other than map: %s", quote(e.Value))
			continue
		}
		each(e, at.index(i))
	}
}

// pair is an entry of a mapping. One that is merged gives way to others.
type pair struct {
	key, value *yaml.Node
	merged     bool
}

// pairs returns the entries of a mapping in their order: first those that merge keys bring.
func (d *decoder) pairs(n *yaml.Node, at path, depth int) []pair {
	if !d.visit(len(n.Content)/2, n, at) {
		return nil
	}
	var merged, own []pair
	keys := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag != "!!merge" {
			own = append(own, pair{key: key, value: value})
			keys[key.Value] = true
			continue
		}
		from := []*yaml.Node{d.follow(value)}
		if from[0].Kind == yaml.SequenceNode {
			from = slices.Clone(from[0].Content)
			slices.Reverse(from) // of several, the first wins
		}
		for _, m := range from {
			if d.visits > maxVisits {
				return nil
			}
			if m = d.follow(m); m.Kind != yaml.MappingNode || depth == maxDepth {
				d.problem(key, at, "a merge key takes a mapping, and at most %d one in the other", maxDepth)
				continue
			}
			for _, p := range d.pairs(m, at, depth+1) {
				merged = append(merged, pair{p.key, p.value, true})
			}
		}
	}
	return append(slices.DeleteFunc(merged, func(p pair) bool { return keys[p.key.Value] }), own...)
}

// visit reports whether so many elements may be read yet. Aliases could make them more
// than a file has by any factor.
func (d *decoder) visit(elements int, n *yaml.Node, at path) bool {
	before := d.visits
	if d.visits += elements; d.visits <= maxVisits {
		return true
	}
	if before <= maxVisits {
		d.problem(n, at, "the aliases so far stand for more than %d elements", maxVisits)
	}
	return false
}

// leaf reads a scalar as text, whatever YAML takes it for; nothing is an empty text.
func (d *decoder) leaf(n *yaml.Node, at path) string {
	n = d.follow(n)
	switch {
	case n.Kind != yaml.ScalarNode:
		d.problem(n, at, "is not text")
		return ""
	case isNull(n):
		return ""
	case n.Tag == "!!float":
		d.problem(n, at, "error checking config: %s is a number with a fraction, not text; put it in quotes", quote(n.Value))
	}
	return n.Value
}

// bounded is leaf of so many bytes at most.
func (d *decoder) bounded(n *yaml.Node, at path) string {
	text := d.leaf(n, at)
	if len(text) > maxLyftText {
		d.problem(n, at, "%s has %d bytes, more than %d", quote(text), len(text), maxLyftText)
	}
	return text
}

// yesNo reads a boolean of YAML 1.1.
func (d *decoder) yesNo(n *yaml.Node, at path) bool {
	n = d.follow(n)
	plain := n.Kind == yaml.ScalarNode && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0
	switch text := strings.ToLower(n.Value); {
	case isNull(n):
		return false
	case plain && slices.Contains([]string{"true", "yes", "on", "y"}, text):
		return true
	case !plain || !slices.Contains([]string{"false", "no", "off", "n"}, text):
		d.problem(n, at, "%s is not true or false", quote(n.Value))
	}
	return false
}

func (d *decoder) uint32(n *yaml.Node, at path) uint32 {
	n = d.follow(n)
	if isNull(n) {
		return 0
	}
	value, err := strconv.ParseUint(strings.ReplaceAll(n.Value, "_", ""), 0, 32)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
		d.problem(n, at, "%s is not a whole number between 0 and %d", quote(n.Value), uint32(math.MaxUint32))
	}
	return uint32(value)
}

// metadata reads a mapping of anything.
func (d *decoder) metadata(n *yaml.Node, at path) map[string]any {
	n = d.follow(n)
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.problem(n, at, "error parsing metadata: is not a mapping")
		return nil
	}
	value, _ := d.anything(n, at, 0).(map[string]any)
	return value
}

// anything reads a value as encoding/json would have it.
func (d *decoder) anything(n *yaml.Node, at path, depth int) any {
	n = d.follow(n)
	if d.nodes++; d.nodes > maxRules || depth > maxMetadataDepth {
		if d.nodes == maxRules+1 || depth > maxMetadataDepth {
			d.problem(n, at, "error parsing metadata: more than %d values in all, or one in the other more than %d deep", maxRules, maxMetadataDepth)
		}
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any)
		for _, p := range d.pairs(n, at, 0) {
			m[p.key.Value] = d.anything(p.value, at.key(p.key.Value), depth+1)
		}
		return m
	case yaml.SequenceNode:
		if !d.visit(len(n.Content), n, at) {
			return nil
		}
		list := make([]any, len(n.Content))
		for i, e := range n.Content {
			list[i] = d.anything(e, at.index(i), depth+1)
		}
		return list
	}
	return d.scalar(n, at)
}

func (d *decoder) scalar(n *yaml.Node, at path) any {
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int", "!!float":
		var f float64
		if n.Decode(&f) != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			d.problem(n, at, "error parsing metadata: %s is not a finite number", quote(n.Value))
		}
		return f
	}
	return n.Value
}

// descriptorsDocument reads one document.
func (d *decoder) descriptorsDocument(n *yaml.Node, at path) {
	var r descriptorsReader
	lenient(d, n, at, descriptorsFields, &r)
	if valueOf(n, "domain") == nil {
		d.problem(n, at.key("domain"), "config file cannot have empty domain")
	}
	if r.domain == "" {
		return
	}
	tree := d.descriptors[r.domain]
	switch {
	case tree == nil:
		tree = &Descriptors{Domain: r.domain, how: d.how, file: d.file, line: n.Line, column: n.Column}
		d.descriptors[r.domain] = tree
	case !d.how.Merge:
		d.problem(n, at.key("domain"), "duplicate domain %s in config file, first at %s:%d; to put them together, see merge-domains",
			quote(r.domain), tree.file, tree.line)
		return
	}
	if r.list != nil {
		d.children(r.list, r.at, tree, &tree.root, "", 1)
	}
}

// children reads a list of descriptors, which stand behind the composites in prefix.
func (d *decoder) children(n *yaml.Node, at path, tree *Descriptors, parent *descriptor, prefix string, depth int) {
	if depth > maxDepth {
		d.problem(n, at, "the descriptors stand one in the other more than %d deep, and no request has so many entries", maxDepth)
		return
	}
	d.mappings(n, at, func(n *yaml.Node, at path) {
		if d.nodes++; d.nodes > maxRules {
			if d.nodes == maxRules+1 {
				d.problem(n, at, "is one more than the %d descriptors that a set may have", maxRules)
			}
			return
		}
		d.descriptor(n, at, tree, parent, prefix, depth)
	})
}

// descriptor reads one descriptor, and puts it under its parent.
func (d *decoder) descriptor(n *yaml.Node, at path, tree *Descriptors, parent *descriptor, prefix string, depth int) {
	var r descriptorReader
	if name := d.nameOf(n); name != "" {
		at = path{rule: prefix + name}
	}
	lenient(d, n, at, descriptorFields, &r)
	if r.spec.Key == "" {
		d.problem(cmp.Or(r.key, n), at.key("key"), "descriptor has empty key")
		return
	}
	child := &descriptor{
		key: r.spec.Key, value: r.spec.Value, share: r.spec.ShareThreshold, named: r.spec.ValueToMetric,
		varies: parent.varies || r.spec.ValueToMetric, spec: r.spec,
	}
	composite := child.composite()
	if parent.children[composite] != nil {
		d.problem(n, at, "duplicate descriptor composite key %s", quote(prefix+composite))
		return
	}
	if child.share && !strings.Contains(composite, "*") {
		d.problem(n, at.key("share_threshold"), "share_threshold can only be used with wildcard values (containing '*'), but found key %s", quote(composite))
	}
	parent.add(child)
	if r.spec.RateLimit != nil {
		child.rule = d.descriptorRule(n, at, tree, &r, prefix+composite)
		child.rule.Descriptor.varies = child.varies || r.spec.DetailedMetric
	}
	if r.all != nil {
		d.children(r.all, path{rule: prefix + composite, field: "descriptors"}, tree, child, prefix+composite+".", depth+1)
	}
}

// nameOf looks ahead for what messages call a descriptor.
func (d *decoder) nameOf(n *yaml.Node) string {
	text := func(key string) string {
		v := valueOf(n, key)
		if v == nil {
			return ""
		}
		if v = d.follow(v); isNull(v) {
			return ""
		}
		return v.Value
	}
	c := descriptor{key: text("key"), value: text("value")}
	if c.key == "" {
		return ""
	}
	return c.composite()
}

// add puts child behind its siblings.
func (n *descriptor) add(child *descriptor) {
	composite := child.composite()
	if n.children == nil {
		n.children = make(map[string]*descriptor)
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
func (d *decoder) rateLimit(n *yaml.Node, at path, r *descriptorReader) {
	if isNull(n) {
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
		d.problem(cmp.Or(r.unitNode, n), at.key("unit"), "invalid rate limit unit %s; known are %s", quote(l.Unit), strings.Join(unitNames[Second:], ", "))
	case !r.hasRequests:
		d.warn(n, at, "requests_per_unit is missing, and so 0: every request is denied")
	}
	if valid {
		l.Unit = r.unit.String()
	}
	if l.Name != "" && slices.Contains(l.Replaces, l.Name) {
		d.problem(n, at.key("replaces"), "replaces should not contain name of same descriptor: %s", quote(l.Name))
	}
}

// descriptorRule makes the Rule of a descriptor, and takes it in.
func (d *decoder) descriptorRule(n *yaml.Node, at path, tree *Descriptors, r *descriptorReader, id string) *Rule {
	l := r.spec.RateLimit
	rule := &Rule{
		Domain: tree.Domain, ID: id, Unlimited: l.Unlimited, Enforce: 100, IPv6Prefix: defaultIPv6Prefix, Enabled: true, cost: 1,
		// Envoy has its own policy for when nobody answers, but a share is better than that.
		OnFailure: FailLocal,
		Descriptor: &Descriptor{
			Name: l.Name, Replaces: l.Replaces, Shadow: r.spec.ShadowMode, Quota: r.spec.QuotaMode,
			Metadata: r.spec.Metadata, detailed: r.spec.DetailedMetric, name: tree.Domain + "." + id,
			Requests: l.RequestsPerUnit, Unit: r.unit, spec: r.spec,
		},
		file: d.file, line: n.Line, column: n.Column,
	}
	if r.spec.ShadowMode {
		rule.Enforce = 0
	}
	if !l.Unlimited && r.unit != 0 {
		limit := d.how.Limit(l.RequestsPerUnit, r.unit.Window())
		if err := limit.Validate(); err != nil {
			d.problem(n, at.key("rate_limit"), "%v", err)
		}
		rule.Limits, rule.Descriptor.Salt = []algorithms.Limit{limit}, salt(limit)
	}
	for i := 2; d.byName[ruleName{rule.Domain, rule.ID}] != nil; i++ { // a dot may be part of a key
		rule.ID = fmt.Sprintf("%s~%d", id, i)
	}
	d.addRule(rule)
	return rule
}
