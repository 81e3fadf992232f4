package api

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/rules"
	envoyrules "github.com/weirlimit/weir/rules/envoy"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// This file turns rules on the wire into plain data and back.

// readRateLimit returns the rule that r says in one of its two forms. What the
// rules themselves bound is left to them.
func readRateLimit(r *weirv1.RateLimit) (domain string, spec rules.Spec, err error) {
	const field = "rate_limit"
	if r == nil {
		return "", spec, wire.Invalid(field, "must not be empty")
	}
	domain = cmp.Or(r.GetDomain(), DefaultDomain)
	switch simple := simpleField(r); {
	case r.GetRule() != nil:
		spec = readRule(r.GetId(), r.GetRule())
		if simple != "" && !sameRule(domain, spec, simpleSpec(r, fmt.Sprint(r.GetWindowSeconds(), "s"))) {
			return "", spec, wire.Invalid(field, "must have the simple fields or rule, or both if they say the same, but has both %s and another rule", simple)
		}
		return domain, spec, nil
	case r.Limit == nil:
		return "", spec, wire.Invalid(field+".limit", "is missing; give limit and window_seconds, or rule")
	}
	const most = uint32(algorithms.MaxWindow / time.Second)
	if w := r.GetWindowSeconds(); w < 1 || w > most {
		return "", spec, wire.Invalid(field+".window_seconds", "%d is not between 1 and %d", w, most)
	}
	return domain, simpleSpec(r, fmt.Sprint(r.GetWindowSeconds(), "s")), nil
}

// sameRule reports whether two forms of a rule, as a read returns them both, decide
// alike.
func sameRule(domain string, a, b rules.Spec) bool {
	var hashes [2]string
	for i, spec := range []rules.Spec{a, b} {
		set, err := rules.Compile("rules", []rules.Document{{Domain: domain, Rules: []rules.Spec{spec}}})
		if err != nil {
			return false
		}
		hashes[i] = set.Hash()
	}
	return hashes[0] == hashes[1]
}

// simpleField returns a field of the simple form that is set, or nothing.
func simpleField(r *weirv1.RateLimit) string {
	switch {
	case r.GetEndpoint() != "":
		return "endpoint"
	case r.GetIdentifierType() != "":
		return "identifier_type"
	case r.Limit != nil:
		return "limit"
	case r.GetWindowSeconds() != 0:
		return "window_seconds"
	case r.GetAlgorithm() != "":
		return "algorithm"
	case r.Enabled != nil:
		return "enabled"
	}
	return ""
}

// simpleSpec is what the simple form of r means, with the window as a text.
func simpleSpec(r *weirv1.RateLimit, window string) rules.Spec {
	spec := rules.Spec{
		ID:      r.GetId(),
		Limits:  []rules.LimitSpec{{Limit: int64(r.GetLimit()), Window: window, Algorithm: r.GetAlgorithm()}},
		Enabled: r.Enabled,
	}
	if r.GetEndpoint() != "" {
		spec.When = map[string]rules.ConditionSpec{endpointAttribute: {AnyOf: []string{r.GetEndpoint()}}}
	}
	if r.GetIdentifierType() != "" {
		spec.Per = [][]string{{r.GetIdentifierType()}}
	}
	return spec
}

// writeRateLimit returns a rule of a state in both forms.
func writeRateLimit(rule *rules.Rule, state *rules.State) *weirv1.RateLimit {
	spec := rule.Spec()
	full := &weirv1.RateLimit{
		Domain: rule.Domain, Id: rule.ID, Rule: writeRule(spec),
		Revision: state.RuleRevision(rule.Domain, rule.ID),
	}
	addSimple(full, rule, spec)
	addPath(full.GetRule(), rule.Descriptor)
	return full
}

// addPath tells what leads to the limit d, nil for a rule, and by which values it counts.
func addPath(r *weirv1.Rule, d *envoyrules.Descriptor) {
	if d == nil {
		return
	}
	for _, e := range d.Path {
		r.DescriptorPath = append(r.DescriptorPath, &weirv1.DescriptorEntry{Key: e.Key, Value: e.Value})
	}
	if keys := d.CountsBy(); len(keys) > 0 {
		r.Per = []*weirv1.AttributeSet{{Attributes: keys}}
	}
}

// addSimple fills the simple fields of r if they say all that spec says.
func addSimple(r *weirv1.RateLimit, rule *rules.Rule, spec rules.Spec) {
	if len(spec.Limits) != 1 || len(spec.When) > 1 || len(spec.Per) > 1 {
		return
	}
	window := time.Duration(rule.Limits[0].Window)
	simple := &weirv1.RateLimit{
		Id: spec.ID, Limit: number[uint32](&spec.Limits[0].Limit), Algorithm: spec.Limits[0].Algorithm, Enabled: spec.Enabled,
		WindowSeconds: uint32(window / time.Second),
	}
	if c := spec.When[endpointAttribute]; len(c.AnyOf) == 1 {
		simple.Endpoint = c.AnyOf[0]
	}
	if len(spec.Per) == 1 && len(spec.Per[0]) == 1 {
		simple.IdentifierType = spec.Per[0][0]
	}
	// The simple form has said all if nothing is lost on the way back.
	if window%time.Second != 0 || !reflect.DeepEqual(simpleSpec(simple, spec.Limits[0].Window), spec) {
		return
	}
	r.Endpoint, r.IdentifierType = simple.GetEndpoint(), simple.GetIdentifierType()
	r.Limit, r.WindowSeconds = simple.Limit, simple.GetWindowSeconds()
	r.Algorithm, r.Enabled = rule.Limits[0].Algorithm.String(), proto.Bool(rule.Enabled)
}

// number converts one that may be unset. All of rules that are in force fit either type:
// rules bounds them.
func number[To, From int64 | uint32](n *From) *To {
	if n == nil {
		return nil
	}
	return new(To(*n))
}

// readRule returns what r says of the rule id.
func readRule(id string, r *weirv1.Rule) rules.Spec {
	spec := rules.Spec{
		ID: id, Unlimited: r.GetUnlimited(), Replaces: r.GetReplaces(), OnFailure: r.GetOnFailure(), Durability: r.GetDurability(), Enforce: number[int64](r.Enforce),
		MaxDelay: r.GetMaxDelay(), Cost: r.GetCost(), IPv6Prefix: int64(r.GetIpv6Prefix()), Enabled: r.Enabled,
	}
	if len(r.GetWhen()) > 0 {
		spec.When = make(map[string]rules.ConditionSpec, len(r.GetWhen()))
	}
	for attribute, c := range r.GetWhen() {
		spec.When[attribute] = rules.ConditionSpec{AnyOf: c.GetAnyOf(), Absent: c.GetAbsent()}
	}
	for _, set := range r.GetPer() {
		spec.Per = append(spec.Per, set.GetAttributes())
	}
	for _, l := range r.GetLimits() {
		limit := rules.LimitSpec{
			Limit: int64(l.GetLimit()), Window: l.GetWindow(), Burst: int64(l.GetBurst()), Buckets: int64(l.GetBuckets()), Algorithm: l.GetAlgorithm(),
		}
		if c := l.GetCalendar(); c != nil {
			limit.Calendar = &rules.CalendarSpec{Calendar: c.GetCalendar(), Timezone: c.GetTimezone(), Anchor: int64(c.GetAnchor())}
		}
		spec.Limits = append(spec.Limits, limit)
	}
	if m := r.GetMode(); m != nil {
		spec.Mode = &rules.ModeSpec{}
		if m.GetSoft() != nil {
			spec.Mode.Soft = &rules.SoftSpec{Over: m.GetSoft().GetOver()}
		}
		if m.GetElastic() != nil {
			spec.Mode.Elastic = &rules.ElasticSpec{Parent: m.GetElastic().GetParent(), UpTo: m.GetElastic().GetUpTo()}
		}
	}
	return spec
}

// writeRule is the inverse of readRule.
func writeRule(spec rules.Spec) *weirv1.Rule {
	r := &weirv1.Rule{
		Unlimited: spec.Unlimited, Replaces: spec.Replaces, OnFailure: spec.OnFailure, Durability: spec.Durability, Enforce: number[uint32](spec.Enforce),
		MaxDelay: spec.MaxDelay, Cost: spec.Cost, Ipv6Prefix: uint32(spec.IPv6Prefix), Enabled: spec.Enabled,
		DescriptorYaml: spec.Descriptor.String(),
	}
	if len(spec.When) > 0 {
		r.When = make(map[string]*weirv1.Condition, len(spec.When))
	}
	for attribute, c := range spec.When {
		r.When[attribute] = &weirv1.Condition{AnyOf: c.AnyOf, Absent: c.Absent}
	}
	for _, set := range spec.Per {
		r.Per = append(r.Per, &weirv1.AttributeSet{Attributes: set})
	}
	for _, l := range spec.Limits {
		limit := &weirv1.Limit{
			Limit: uint32(l.Limit), Window: l.Window, Burst: uint32(l.Burst), Buckets: uint32(l.Buckets), Algorithm: l.Algorithm,
		}
		if c := l.Calendar; c != nil {
			limit.Calendar = &weirv1.Calendar{Calendar: c.Calendar, Timezone: c.Timezone, Anchor: uint32(c.Anchor)}
		}
		r.Limits = append(r.Limits, limit)
	}
	if m := spec.Mode; m != nil {
		r.Mode = &weirv1.Mode{}
		if m.Soft != nil {
			r.Mode.Soft = &weirv1.SoftMode{Over: m.Soft.Over}
		}
		if m.Elastic != nil {
			r.Mode.Elastic = &weirv1.ElasticMode{Parent: m.Elastic.Parent, UpTo: m.Elastic.UpTo}
		}
	}
	return r
}

// Documents returns rules that were read from a node, in their order, except for those that are
// descriptors.
func Documents(limits []*weirv1.RateLimit) []rules.Document {
	var docs []rules.Document
	for _, r := range limits {
		if r.GetRule().GetDescriptorYaml() != "" {
			continue
		}
		if n := len(docs); n == 0 || docs[n-1].Domain != r.GetDomain() {
			docs = append(docs, rules.Document{Domain: r.GetDomain()})
		}
		last := &docs[len(docs)-1]
		last.Rules = append(last.Rules, readRule(r.GetId(), r.GetRule()))
	}
	return docs
}

// writeChanges returns the differences, those of new rules first.
func writeChanges(c rules.Changes) []*weirv1.RuleChange {
	var all []*weirv1.RuleChange
	for _, r := range c.Added {
		all = append(all, &weirv1.RuleChange{Kind: weirv1.RuleChange_KIND_ADDED, Domain: r.Domain, Id: r.Spec.ID})
	}
	for _, r := range c.Changed {
		change := &weirv1.RuleChange{Kind: weirv1.RuleChange_KIND_CHANGED, Domain: r.Domain, Id: r.New.ID}
		for _, f := range r.Details() {
			change.Fields = append(change.Fields, &weirv1.FieldChange{Field: f.Field, Old: f.Old, New: f.New})
		}
		all = append(all, change)
	}
	for _, r := range c.Removed {
		all = append(all, &weirv1.RuleChange{Kind: weirv1.RuleChange_KIND_REMOVED, Domain: r.Domain, Id: r.Spec.ID})
	}
	return all
}
