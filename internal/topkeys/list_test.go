package topkeys

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func keysOf(l *List) string {
	var b strings.Builder
	for _, k := range l.Keys {
		for _, a := range Attributes(k.Text) {
			fmt.Fprintf(&b, "%s=%s ", a.Key, a.Value)
		}
		fmt.Fprintf(&b, "%d ", k.Least)
	}
	return strings.TrimSpace(b.String())
}

// Lists of nodes add up, and a key that one node does not list can have what that node may have dropped.
func TestMergeNodes(t *testing.T) {
	quiet, busy := Name{"d", "quiet"}, Name{"d", "busy"}
	a := &List{Seconds: 65, Others: 9, Unlisted: map[Name]uint64{busy: 9, quiet: 0}, Keys: []Key{
		{ID: 1, Rule: busy, Text: "x", Least: 10, Most: 12, Variance: 4}, {ID: 2, Rule: quiet, Text: "y", Least: 3, Most: 3},
	}}
	b := &List{Seconds: 20, Others: 5, Unlisted: map[Name]uint64{busy: 5}, Keys: []Key{
		{ID: 1, Rule: busy, Text: "x", Least: 1, Most: 1, Variance: 2}, {ID: 3, Rule: busy, Text: "z", Least: 4, Most: 8},
	}}
	got := Merge([]*List{a, b}, 10)
	want := &List{Seconds: 65, Others: 14, Keys: []Key{
		{ID: 1, Rule: busy, Text: "x", Least: 11, Most: 13, Variance: 6}, {ID: 3, Rule: busy, Text: "z", Least: 4, Most: 17}, {ID: 2, Rule: quiet, Text: "y", Least: 3, Most: 8},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if one := Merge([]*List{a, b}, 1); len(one.Keys) != 1 || one.Others != 17 {
		t.Errorf("%+v", one)
	}
}
