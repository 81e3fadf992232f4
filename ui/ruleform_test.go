package ui

import (
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// posted is the form that a browser posts for the fields.
func (f *fieldsForm) posted() url.Values {
	form := url.Values{"enforce": {f.Enforce}, "on-failure": {f.OnFailure}}
	for _, w := range f.When {
		kind := "is"
		if w.Absent {
			kind = "absent"
		}
		form["when-name"], form["when-kind"] = append(form["when-name"], w.Name), append(form["when-kind"], kind)
		form["when-values"] = append(form["when-values"], strings.ReplaceAll(w.Values, "\n", "\r\n"))
	}
	form["per"] = f.Per
	for _, l := range f.Limits {
		for name, v := range map[string]string{"limit": l.Limit, "window": l.Window, "algorithm": l.Algorithm, "burst": l.Burst, "limit-old": strconv.Itoa(l.Old)} {
			form[name] = append(form[name], v)
		}
	}
	if f.Unlimited {
		form.Set("unlimited", "1")
	}
	if f.Off {
		form.Set("off", "1")
	}
	return form
}

// A form that is posted as it was shown changes nothing in any rule.
func TestFieldsKeepARule(t *testing.T) {
	for _, rule := range []*weirv1.Rule{
		{Unlimited: true, When: map[string]*weirv1.Condition{"plan": {Absent: true}}},
		{
			When: map[string]*weirv1.Condition{"endpoint": {AnyOf: []string{"/a*", "re:x | y"}}, "bot": {Absent: true}},
			Per:  []*weirv1.AttributeSet{{Attributes: []string{"user", "card"}}, {Attributes: []string{"ip"}}},
			Limits: []*weirv1.Limit{
				{Limit: 5, Window: "1m", Algorithm: "sliding_window_buckets", Buckets: 7}, {Limit: 9, Calendar: &weirv1.Calendar{Calendar: "month", Anchor: 15}, Algorithm: "fixed_window"},
				{Limit: 0, Window: "1h", Algorithm: "token_bucket", Burst: 3},
			},
			Enforce: proto.Uint32(10), OnFailure: "deny", Enabled: proto.Bool(false), Replaces: []string{"other"}, Cost: "size", MaxDelay: "2s", Durability: "strict",
			Mode: &weirv1.Mode{Soft: &weirv1.SoftMode{Over: "10%"}}, Ipv6Prefix: 48,
		},
	} {
		changed := proto.CloneOf(rule)
		if problems := changeFields(changed, fieldsOfRule(rule).posted()); len(problems) > 0 || !proto.Equal(rule, changed) {
			t.Errorf("%q\nwas    %v\nand is %v", problems, rule, changed)
		}
	}
}

// TestFormShowsEachField sets each field of a rule that has none: the form shows it, or says that it stays as it is.
func TestFormShowsEachField(t *testing.T) {
	fields := (&weirv1.Rule{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f, rule := fields.Get(i), &weirv1.Rule{}
		m := rule.ProtoReflect()
		switch {
		case f.Name() == "limits":
			rule.Limits = []*weirv1.Limit{{Limit: 5}}
		case f.Name() == "per":
			rule.Per = []*weirv1.AttributeSet{{Attributes: []string{"user"}}}
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOf("user").MapKey(), m.Mutable(f).Map().NewValue())
		case f.IsList() && f.Message() != nil:
			m.Mutable(f).List().AppendMutable()
		case f.IsList():
			m.Mutable(f).List().Append(protoreflect.ValueOf("x"))
		case f.Message() != nil:
			m.Set(f, m.NewField(f))
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOf("x"))
		case f.Kind() == protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOf(f.Name() != "enabled"))
		default:
			m.Set(f, protoreflect.ValueOf(uint32(5)))
		}
		with, without := fieldsOfRule(rule), fieldsOfRule(&weirv1.Rule{})
		shown := !reflect.DeepEqual(with.posted(), without.posted())
		if kept := slices.Contains(with.Kept, string(f.Name())); shown == kept {
			t.Errorf("%s: the form of a rule shows it: %v, and says that it keeps it: %v: see ofForm in ui/ruleform.go", f.Name(), shown, kept)
		}
	}
}

// What is changed in the form is changed in the rule; what is no number is named.
func TestFieldsChangeARule(t *testing.T) {
	rule := &weirv1.Rule{Limits: []*weirv1.Limit{{Limit: 5, Window: "1m"}, {Limit: 9, Calendar: &weirv1.Calendar{Calendar: "day"}}}}
	form := fieldsOfRule(rule).posted()
	form["limit"] = []string{"", "7", "3"}
	form["window"] = []string{"", "2h", "1s"}
	form["per"] = []string{"user, card", " "}
	form["when-name"], form["when-values"], form["when-kind"] = []string{"endpoint"}, []string{"/a\r\n/b\r\n"}, []string{"is"}
	form.Set("enforce", "0")
	if problems := changeFields(rule, form); len(problems) > 0 {
		t.Fatal(problems)
	}
	want := &weirv1.Rule{
		When:   map[string]*weirv1.Condition{"endpoint": {AnyOf: []string{"/a", "/b"}}},
		Per:    []*weirv1.AttributeSet{{Attributes: []string{"user", "card"}}},
		Limits: []*weirv1.Limit{{Limit: 7, Window: "2h"}, {Limit: 3, Window: "1s"}}, Enforce: proto.Uint32(0),
	}
	if !proto.Equal(rule, want) {
		t.Errorf("got  %v\nwant %v", rule, want)
	}
	form["limit"][1], form["burst"][2] = "many", "-1"
	form["when-name"], form["when-values"] = []string{"a", "a", ""}, []string{"x", "y", "z"}
	form.Set("enforce", "all")
	form.Set("new", "yes")
	b := &editBody{}
	problems, err := (&Server{}).readFields(t.Context(), form, b)
	if f := b.Fields; err != nil || f.Limits[0].Limit != "many" || f.Limits[1].Burst != "-1" || f.Enforce != "all" { // not the 0 that they are read as
		t.Errorf("the form shows %+v again, %v", f, err)
	}
	for _, field := range []string{"limits[0].limit", "limits[1].burst", "enforce", `when: "a" is there twice`, `"z" have no attribute`} {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, field) }) {
			t.Errorf("%q lacks %s", problems, field)
		}
	}
}
