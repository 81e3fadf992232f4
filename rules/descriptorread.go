package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir/algorithms"
)

// This file reads the files of envoyproxy/ratelimit. What that server refuses is refused,
// in its words and with the place; what it passes over in silence is a warning.

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
