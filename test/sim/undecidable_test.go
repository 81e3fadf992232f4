package sim

import (
	"testing"
	"time"
)

// Instants at which a check may be undecided, and others.
func TestUndecidable(t *testing.T) {
	p := Plan{Start: []string{"a", "b", "c", "d"}, Faults: []Fault{
		{Kind: Split, At: 5 * second, For: second}, {Kind: Crash, At: 20 * second, Node: "a"}, {Kind: Crash, At: 25 * second, For: 5 * second, Node: "b"}, {Kind: Crash, At: 50 * second, Node: "b"},
		{Kind: OneWay, At: 60 * second, For: 2 * second, Node: "a", Other: "b"}, {Kind: Reset, At: 61 * second, Node: "c", Other: "a"},
		{Kind: OneWay, At: 70 * second, For: 10 * second, Node: "a", Other: "b"}, {Kind: Slow, At: 72 * second, For: 5 * second, Node: "c", Other: "b"},
		{Kind: Crash, At: 75 * second, For: 9 * second, Node: "d"},
	}}
	for at, want := range map[time.Duration]bool{
		4 * second: false, 4899 * time.Millisecond: false, 4901 * time.Millisecond: true, 6 * second: true, 10 * second: true, 12 * second: false,
		24 * second: false, 24901 * time.Millisecond: true, 26 * second: true, 27 * second: false, 31 * second: true, 32 * second: false, 51 * second: false,
		60 * second: false, 61 * second: true, 61101 * time.Millisecond: false, 74 * second: false, 75 * second: true, 76 * second: true, 77200 * time.Millisecond: true, 77300 * time.Millisecond: false,
	} {
		if got := p.undecidable(at); got != want {
			t.Errorf("at %v: %v", at, got)
		}
	}
}

// A node that is back relays past a cut once a view names it: not while the first member is gone, which writes views.
func TestUndecidableWithoutAWriter(t *testing.T) {
	for _, tc := range []struct {
		gone, from, to string
		want           bool
	}{{"a", "b", "d", true}, {"d", "a", "b", false}} {
		p := Plan{Start: []string{"a", "b", "c", "d"}, Faults: []Fault{
			{Kind: Crash, At: 4 * second, For: 4 * second, Node: "c"}, {Kind: Crash, At: 7 * second, For: 6 * second, Node: tc.gone},
			{Kind: OneWay, At: 11 * second, For: second, Node: tc.from, Other: tc.to},
		}}
		if got := p.undecidable(11500 * time.Millisecond); got != tc.want {
			t.Errorf("without %s: %v, want %v", tc.gone, got, tc.want)
		}
	}
}

// Where no node has to answer in time, and where one has.
func TestUnanswerable(t *testing.T) {
	stall := Fault{Kind: Stall, At: 10 * second, For: second, Node: "c"}
	death := func(at time.Duration) Fault { return Fault{Kind: Crash, At: at, Node: "b"} }
	for name, tc := range map[string]struct {
		faults []Fault
		at     time.Duration
		want   bool
	}{
		"a stall":                     {[]Fault{stall}, 10500 * time.Millisecond, false},
		"a death":                     {[]Fault{death(10 * second)}, 9950 * time.Millisecond, false},
		"a stall and a death":         {[]Fault{death(8 * second), stall}, 10500 * time.Millisecond, true},
		"after a stall":               {[]Fault{death(8 * second), stall}, 11001 * time.Millisecond, false},
		"a death long before a stall": {[]Fault{death(time.Second), stall}, 10500 * time.Millisecond, false},
		"a death in a split":          {[]Fault{{Kind: Split, At: 9 * second, For: 2 * second}, death(10 * second)}, 9950 * time.Millisecond, true},
		"a death before, in a split":  {[]Fault{{Kind: Split, At: 9 * second, For: 2 * second}, death(9900 * time.Millisecond)}, 9950 * time.Millisecond, false},
		"a split, and no death":       {[]Fault{{Kind: Split, At: 9 * second, For: 2 * second}}, 9950 * time.Millisecond, false},
		"a node that dies and stalls": {[]Fault{{Kind: Crash, At: 8 * second, Node: "c"}, stall}, 10500 * time.Millisecond, false},
	} {
		if got := (Plan{Start: []string{"a", "b", "c", "d"}, Faults: tc.faults}).unanswerable(tc.at); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
