package rules

import (
	"fmt"
	"slices"
	"testing"
)

func TestChangeDetails(t *testing.T) {
	off := false
	c := Change{
		Old: Spec{ID: "r", When: map[string]ConditionSpec{"m": {AnyOf: []string{"a", "b"}}, "n": {Absent: true}}, Per: [][]string{{"user"}},
			Limits: []LimitSpec{{Limit: 1, Window: "1s"}}},
		New: Spec{ID: "r", When: map[string]ConditionSpec{"m": {AnyOf: []string{"c"}}}, Per: [][]string{{"user"}, {"ip", "x"}},
			Limits: []LimitSpec{{Limit: 2, Window: "1s"}, {Limit: 3, Window: "1h", Burst: 4}}, Enabled: &off},
	}
	var got []string
	for _, f := range c.Details() {
		got = append(got, fmt.Sprintf("%s: %s -> %s", f.Field, f.Old, f.New))
	}
	want := []string{
		"when.m: [a, b] -> c", "per[0]:  -> [user]", "per[1]:  -> [ip, x]", "limits[0].limit: 1 -> 2", "limits[1].limit:  -> 3",
		"limits[1].window:  -> 1h", "limits[1].burst:  -> 4", "enabled:  -> false", "when.n.absent: true -> ", "per: [user] -> ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
