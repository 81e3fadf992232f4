package decisionlog

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/asciijson"
)

// fillAll gives every field a value of its own.
func fillAll(v reflect.Value, next *int64) {
	*next++
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(*next, 123456789).UTC()))
			return
		}
		for _, f := range v.Fields() {
			fillAll(f, next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fillAll(v.Index(0), next)
		fillAll(v.Index(1), next)
	case reflect.String:
		v.SetString("a\"\\\n\u2028\U0001F600" + string(rune('a'+*next%26)))
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(*next << 40)
	}
}

// A line is what encoding/json makes of it, in ASCII, and comes back from it.
func TestLineIsItsJSON(t *testing.T) {
	var full Line
	var n int64
	fillAll(reflect.ValueOf(&full).Elem(), &n)
	empty := Line{Descriptors: []Descriptor{{Entries: []Entry{}, Limits: []Limit{{}}}}}
	for _, line := range []Line{full, empty} {
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		want := append(asciijson.ASCII(nil, text), '\n')
		got := line.AppendTo(nil)
		if !bytes.Equal(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		var back Line
		if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, line) {
			t.Errorf("%v: %+v, want %+v", err, back, line)
		}
	}
}

// The reference has a row for every field, with its type, and for no other.
func TestReferenceHasEveryField(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/decision-log.md")
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]string)
	var collect func(prefix string, of reflect.Type)
	collect = func(prefix string, of reflect.Type) {
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch f.Type.Kind() {
			case reflect.Slice:
				want[prefix+name] = "list"
				collect(name+"[].", f.Type.Elem())
			case reflect.String, reflect.Struct:
				want[prefix+name] = "text"
			case reflect.Bool:
				want[prefix+name] = "bool"
			default:
				want[prefix+name] = "number"
			}
		}
	}
	collect("", reflect.TypeFor[Line]())
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.\\[\\]]+)` \\| (text|number|bool|list) \\|").FindAllStringSubmatch(string(page), -1) {
		if want[row[1]] != row[2] {
			t.Errorf("the page says that %s is a %s, and the code %q", row[1], row[2], want[row[1]])
		}
		delete(want, row[1])
	}
	for name, kind := range want {
		t.Errorf("the page lacks %s, a %s", name, kind)
	}
}
