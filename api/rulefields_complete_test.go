package api

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// place is where a mapping of the rules format is declared in addition to package rules' own table.
type place struct {
	spec    any           // in rules/spec.go
	message proto.Message // in config.proto
	apart   []string      // fields of either that are no keys of the mapping
	// rule is a rule with one key of the mapping, at %s; its other keys permit it.
	rule string
}

const fullRule = "{id: tested, %s, per: [ip], limits: [{limit: 5, window: 1s, algorithm: token_bucket}]}"

var places = map[string]place{
	"rule": {rules.Spec{}, &weirv1.Rule{}, []string{"descriptor", "descriptor_yaml", "descriptor_path"}, fullRule},
	"condition": {rules.ConditionSpec{}, &weirv1.Condition{}, []string{"any_of"},
		"{id: tested, when: {user: {%s}}, limits: [{limit: 5, window: 1s}]}"},
	"limit": {rules.LimitSpec{}, &weirv1.Limit{}, []string{"calendar"},
		"{id: tested, limits: [{%s, limit: 5, window: 1s}]}"},
	"calendar": {rules.CalendarSpec{}, &weirv1.Calendar{}, nil,
		"{id: tested, limits: [{limit: 5, window: {%s, calendar: month}, algorithm: fixed_window}]}"},
	"mode":    {rules.ModeSpec{}, &weirv1.Mode{}, nil, "{id: tested, mode: {%s}, limits: [{limit: 50, window: 1s}]}"},
	"soft":    {rules.SoftSpec{}, &weirv1.SoftMode{}, nil, "{id: tested, mode: {soft: {%s}}, limits: [{limit: 50, window: 1s}]}"},
	"elastic": {rules.ElasticSpec{}, &weirv1.ElasticMode{}, nil, "{id: tested, mode: {elastic: {%s, parent: other, up_to: 150%%}}, limits: [{limit: 50, window: 1s}]}"},
}

// with is what the example of a key needs in addition.
var with = map[string]string{
	"limit.burst": "algorithm: token_bucket", "limit.buckets": "algorithm: sliding_window_buckets",
}

// TestFieldsAreComplete walks all places that have to know a key of the rules format, and names
// those that do not.
func TestFieldsAreComplete(t *testing.T) {
	source, err := os.ReadFile("weir/v1/config.proto")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range rules.Reference() {
		p, found := places[m.Name]
		if !found {
			if m.Name != "document" {
				t.Errorf("%s: missing in places, in api/rulefields_complete_test.go", m.Name)
			}
			continue
		}
		message := p.message.ProtoReflect().Descriptor()
		var keys []string
		for _, f := range m.Fields {
			name := m.Name + "." + f.Key
			keys = append(keys, f.Key)
			for _, missing := range incomplete(f) {
				t.Errorf("%s: its declaration in rules/schema.go lacks a %s", name, missing)
			}
			if !slices.Contains(tags(p.spec), f.Key) {
				t.Errorf("%s: missing in %T, in rules/spec.go", name, p.spec)
			}
			if f.Key != "id" {
				checkMessage(t, name, message, f, string(source))
			}
			checkExample(t, m.Name, p, f)
			checkBounds(t, m.Name, p, f)
			checkLength(t, m.Name, p, f)
			checkDefault(t, m.Name, p, f)
			if m.Name == "rule" {
				checkUnlimited(t, f, m)
			}
		}
		for _, tag := range tags(p.spec) {
			if !slices.Contains(append(keys, p.apart...), tag) {
				t.Errorf("%s.%s: missing in rules/schema.go, but %T has it", m.Name, tag, p.spec)
			}
		}
		for i := range message.Fields().Len() {
			if field := string(message.Fields().Get(i).Name()); !slices.Contains(append(keys, p.apart...), field) {
				t.Errorf("%s.%s: missing in rules/schema.go, but message %s has it", m.Name, field, message.Name())
			}
		}
	}
}

// incomplete lists what the declaration of a key lacks.
func incomplete(f rules.Field) (missing []string) {
	for what, text := range map[string]string{"Type": f.Type, "Default": f.Default, "Meaning": f.Meaning, "Example": f.Example} {
		if text == "" {
			missing = append(missing, what)
		}
	}
	return missing
}

// tags lists the keys of a struct of rules/spec.go.
func tags(spec any) (keys []string) {
	for f := range reflect.TypeOf(spec).Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		keys = append(keys, key)
	}
	return keys
}

// checkMessage looks for a key, its bounds and its values in a message of config.proto.
func checkMessage(t *testing.T, name string, message protoreflect.MessageDescriptor, f rules.Field, source string) {
	t.Helper()
	if message.Fields().ByName(protoreflect.Name(f.Key)) == nil {
		t.Errorf("%s: missing in message %s of api/weir/v1/config.proto; then run make generate", name, message.Name())
		return
	}
	_, body, _ := strings.Cut(source, "\nmessage "+string(message.Name())+" {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	before, _, _ := strings.Cut(body, " "+f.Key+" = ")
	comment := before[strings.LastIndex(before, ";\n")+1:]
	var words []string
	if f.Least < f.Most {
		words = append(words, strconv.FormatInt(f.Most, 10))
	}
	if f.Type == "name" {
		for i, value := range strings.Split(f.Bounds, "`") {
			if i%2 == 1 {
				words = append(words, `"`+value+`"`)
			}
		}
	}
	if most := longest(f); most > 0 {
		words = append(words, strconv.Itoa(most))
	}
	for _, a := range algorithms.Names() {
		if f.Type != "name" && strings.Contains(f.Bounds, "`"+a+"`") {
			words = append(words, a)
		}
	}
	for _, word := range words {
		if !strings.Contains(comment, word) {
			t.Errorf("%s: its comment in api/weir/v1/config.proto lacks %s", name, word)
		}
	}
}

// parseRule returns rules of which one has key: value in the mapping m.
func parseRule(m string, p place, key, value string) (*rules.Set, error) {
	entry := key + ": " + value
	if more := with[m+"."+key]; more != "" {
		entry += ", " + more
	}
	var rule string
	if key == "unlimited" {
		rule = "{id: tested, " + entry + "}"
	} else {
		rule = without(fmt.Sprintf(p.rule, entry), key)
	}
	return parse(rule)
}

// parse returns two rules: one that is named other, and the given one.
func parse(rule string) (*rules.Set, error) {
	return rules.Parse("rules.yaml", []byte("domain: shop\nrules:\n  - {id: other, limits: [{limit: 5, window: 1s}]}\n  - "+rule+"\n"))
}

// absentFrom returns the rule of a place with more in place of the key, or with nothing.
func absentFrom(rule, more string) string {
	if more != "" {
		return fmt.Sprintf(rule, more)
	}
	return strings.NewReplacer("%s, ", "", "%s", "", "%%", "%").Replace(rule)
}

// without leaves out what stands behind the first key: value of a rule for the same key.
func without(rule, key string) string {
	first := strings.Index(rule, key+": ")
	second := strings.LastIndex(rule, ", "+key+": ")
	if key == "id" {
		return strings.Replace(rule, "id: tested, ", "", 1)
	}
	if second <= first {
		return rule
	}
	end := second + 2 + strings.IndexAny(rule[second+2:], ",}")
	if open := strings.Index(rule[second+2:end], "["); open >= 0 {
		end = second + 2 + strings.Index(rule[second+2:], "]") + 1
	}
	return rule[:second] + rule[end:]
}

// checkExample has the example of a key go through the decoder, Rule.Spec, the encoder, and to the
// wire and back.
func checkExample(t *testing.T, m string, p place, f rules.Field) {
	t.Helper()
	name := m + "." + f.Key
	set, err := parseRule(m, p, f.Key, f.Example)
	if err != nil {
		t.Errorf("%s: its example is refused: %v", name, err)
		return
	}
	docs := set.Documents()
	spec := docs[0].Rules[1]
	if f.Key == "id" {
		return
	}
	if plain, err := json.Marshal(docs); err != nil || !strings.Contains(string(plain), `"`+f.Key+`":`) {
		t.Errorf("%s: lost between a file and its Spec: missing in Rule.Spec of rules/spec.go, or not read into the Rule in rules/schema.go; or its example is the default", name)
		return
	}
	if text, err := rules.Format(docs); err != nil || !strings.Contains(string(text), f.Key+":") {
		t.Errorf("%s: lost between a Spec and its file: missing in rules/encode.go", name)
		return
	}
	if back := readRule(spec.ID, writeRule(spec)); !reflect.DeepEqual(back, spec) {
		t.Errorf("%s: lost on the way to the API and back: in readRule or writeRule of api/configservice_messages.go:\n%+v\n%+v", name, spec, back)
	}
}

// checkBounds asks for the last number within the bounds, and for the first beyond them.
func checkBounds(t *testing.T, m string, p place, f rules.Field) {
	t.Helper()
	if f.Least >= f.Most {
		return
	}
	sign := ""
	if strings.HasSuffix(f.Example, "%") {
		sign = "%"
	}
	want := fmt.Sprintf("is not between %d%s and %d%s", f.Least, sign, f.Most, sign)
	for _, beyond := range []int64{f.Least - 1, f.Most + 1} {
		if _, err := parseRule(m, p, f.Key, strconv.FormatInt(beyond, 10)+sign); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s.%s: %d is beyond its bounds, and the decoder says %v", m, f.Key, beyond, err)
		}
	}
	for _, within := range []int64{f.Least, f.Most} {
		if _, err := parseRule(m, p, f.Key, strconv.FormatInt(within, 10)+sign); err != nil && strings.Contains(err.Error(), "is not between") {
			t.Errorf("%s.%s: %d is within its bounds, and the decoder says %v", m, f.Key, within, err)
		}
	}
}

// longest returns how many bytes the bounds of a text permit, or 0 if they do not say.
func longest(f rules.Field) int {
	found := regexp.MustCompile(`(?:^|; )(\d+) bytes`).FindStringSubmatch(f.Bounds)
	if found == nil {
		return 0
	}
	most, _ := strconv.Atoi(found[1]) // of digits alone
	return most
}

// checkLength asks for the longest text within the bounds, and for one that is a byte longer.
func checkLength(t *testing.T, m string, p place, f rules.Field) {
	t.Helper()
	most := longest(f)
	if most == 0 {
		if f.Type == "text" {
			t.Errorf("%s.%s: its Bounds in rules/schema.go lack the length, such as 128 bytes", m, f.Key)
		}
		return
	}
	if _, err := parseRule(m, p, f.Key, strings.Repeat("a", most)); err != nil {
		t.Errorf("%s.%s: %d bytes are within its bounds, and the decoder says %v", m, f.Key, most, err)
	}
	want := fmt.Sprintf("has %d bytes, not ", most+1)
	if _, err := parseRule(m, p, f.Key, strings.Repeat("a", most+1)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s.%s: %d bytes are beyond its bounds, and the decoder does not say that it %s... to %d, but: %v", m, f.Key, most+1, want, most, err)
	}
}

// checkDefault compares a rule with the default of a key, if that can be written down, with one without the key.
func checkDefault(t *testing.T, m string, p place, f rules.Field) {
	t.Helper()
	value := strings.Trim(f.Default, "`")
	if strings.ContainsAny(value, " `") || value == "required" || value == "none" || f.Key == "unlimited" {
		return
	}
	written, err := parseRule(m, p, f.Key, value)
	if err != nil {
		t.Errorf("%s.%s: its default is refused: %v", m, f.Key, err)
		return
	}
	absent, err := parse(without(absentFrom(p.rule, with[m+"."+f.Key]), f.Key))
	if err != nil {
		t.Fatalf("%s.%s: a rule without it is refused: %v", m, f.Key, err)
	}
	if w, a := written.Documents()[0].Rules[1], absent.Documents()[0].Rules[1]; !reflect.DeepEqual(w, a) {
		t.Errorf("%s.%s: its default is not what a rule without it has: set it where a Rule is made, in rules/schema.go or rules/compile.go:\n%+v\n%+v", m, f.Key, w, a)
	}
}

// checkUnlimited says whether a rule that is unlimited may have a key: it may have those that the bounds of unlimited
// name, and none that says how to count.
func checkUnlimited(t *testing.T, f rules.Field, rule rules.Mapping) {
	t.Helper()
	if slices.Contains([]string{"id", "unlimited"}, f.Key) {
		return
	}
	unlimited := rule.Fields[slices.IndexFunc(rule.Fields, func(f rules.Field) bool { return f.Key == "unlimited" })]
	permitted := strings.Contains(unlimited.Bounds, "`"+f.Key+"`")
	_, err := parse(fmt.Sprintf("{id: tested, unlimited: true, %s: %s}", f.Key, f.Example))
	switch {
	case permitted && err != nil:
		t.Errorf("rule.%s: the Bounds of unlimited in rules/schema.go permit it, and the decoder says %v", f.Key, err)
	case !permitted && err == nil:
		t.Errorf("rule.%s: the decoder permits it with unlimited: true: declare it with counting in rules/schema.go if it says how to count, or else name it in the Bounds of unlimited there", f.Key)
	}
}
