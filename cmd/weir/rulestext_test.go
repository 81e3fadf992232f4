package main

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// TestListShowsEachField sets each field of a rule, and of the messages in it, in a rule that has none of them: the row of
// weir rules list differs. A field that does not needs its place in rulestext.go.
func TestListShowsEachField(t *testing.T) {
	row := func(change func(r *weirv1.Rule)) string {
		r := &weirv1.Rule{}
		change(r)
		return formatRuleTable(&weirv1.WatchRulesResponse{RateLimits: []*weirv1.RateLimit{{Domain: "shop", Id: "a", Rule: r}}})
	}
	none := row(func(*weirv1.Rule) {})
	for _, tc := range []struct {
		parent func(r *weirv1.Rule) proto.Message
		apart  string // a field of it that is shown by another one
	}{
		{func(r *weirv1.Rule) proto.Message { return r }, "descriptor_yaml"},
		{func(r *weirv1.Rule) proto.Message {
			r.Limits = []*weirv1.Limit{{}}
			return r.Limits[0]
		}, ""},
		{func(r *weirv1.Rule) proto.Message {
			r.Limits = []*weirv1.Limit{{Calendar: &weirv1.Calendar{}}}
			return r.Limits[0].Calendar
		}, ""},
		{func(r *weirv1.Rule) proto.Message {
			r.Per = []*weirv1.AttributeSet{{}}
			return r.Per[0]
		}, ""},
		{func(r *weirv1.Rule) proto.Message {
			r.DescriptorPath = []*weirv1.DescriptorEntry{{}}
			return r.DescriptorPath[0]
		}, ""},
		{func(r *weirv1.Rule) proto.Message {
			r.When = map[string]*weirv1.Condition{"user": {}}
			return r.When["user"]
		}, ""},
		{func(r *weirv1.Rule) proto.Message {
			r.Mode = &weirv1.Mode{}
			return r.Mode
		}, ""},
		{func(r *weirv1.Rule) proto.Message {
			r.Mode = &weirv1.Mode{Soft: &weirv1.SoftMode{}}
			return r.Mode.GetSoft()
		}, ""},
		{func(r *weirv1.Rule) proto.Message {
			r.Mode = &weirv1.Mode{Elastic: &weirv1.ElasticMode{}}
			return r.Mode.GetElastic()
		}, ""},
	} {
		without := row(func(r *weirv1.Rule) { tc.parent(r) })
		fields := tc.parent(&weirv1.Rule{}).ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			if string(f.Name()) == tc.apart || f.Message() != nil {
				continue // the fields of a message have a line above
			}
			with := row(func(r *weirv1.Rule) { setSample(tc.parent(r).ProtoReflect(), f) })
			if with == without || with == none {
				t.Errorf("weir rules list does not show %s: missing in cmd/weir/rulestext.go", f.FullName())
			}
		}
	}
}

// setSample gives a field a value other than its default.
func setSample(m protoreflect.Message, f protoreflect.FieldDescriptor) {
	switch {
	case f.IsList():
		m.Mutable(f).List().Append(sample(f))
	case f.Name() == "enabled":
		m.Set(f, protoreflect.ValueOfBool(false))
	default:
		m.Set(f, sample(f))
	}
}

// sample returns a value for a field that is other than its default.
func sample(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(7)
	default:
		return protoreflect.ValueOfString("7s")
	}
}
