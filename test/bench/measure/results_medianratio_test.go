package measure

import (
	"testing"
)

// TestMedianRatio: a round in which the machine was slow is slow for both.
func TestMedianRatio(t *testing.T) {
	r := Results{"a": {"ns": {10, 100, 20}}, "b": {"ns": {20, 150, 40}}, "c": {"ns": {1}}}
	if got, ok := r.MedianRatio("a", "b", "ns"); !ok || got != 0.5 {
		t.Errorf("got %v, %v", got, ok)
	}
	for _, other := range []string{"c", "d"} {
		if _, ok := r.MedianRatio("a", other, "ns"); ok {
			t.Errorf("a with %s", other)
		}
	}
	if _, ok := r.MedianRatio("d", "e", "ns"); ok {
		t.Error("nothing twice")
	}
}
