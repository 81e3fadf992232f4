package view

import "testing"

// A report counts in its view and its term only, and not for another life.
func TestReportsCountOnlyInTheirView(t *testing.T) {
	r := Reports{{Life: Life{"a", 2}, Adopted: 7, Settled: []uint64{3, 4}, Complete: []uint64{6, 7}}}
	a := Life{"a", 2}
	for _, tc := range []struct {
		what      string
		got, want bool
	}{
		{"settled in term 3", r.settled(a, 0, 3), true},
		{"settled in a later term", r.settled(a, 0, 4), false},
		{"settled in an earlier term", r.settled(a, 1, 3), false},
		{"settled, of a partition that is not in it", r.settled(a, 2, 0), false},
		{"settled, of another life", r.settled(Life{"a", 1}, 0, 3), false},
		{"complete in view 6", r.complete(a, 0, 6), true},
		{"complete in the next view", r.complete(a, 0, 7), false},
		{"complete in the view before", r.complete(a, 1, 6), false},
		{"complete, of a partition that is not in it", r.complete(a, 2, 0), false},
		{"complete, of another life", r.complete(Life{"b", 2}, 0, 6), false},
		{"adopted", r.adopted(a) == 7 && r.adopted(Life{"a", 3}) == 0, true},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %t, want %t", tc.what, tc.got, tc.want)
		}
	}
}
