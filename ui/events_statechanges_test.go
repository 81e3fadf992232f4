package ui

import (
	"slices"
	"testing"
	"time"
)

// Nodes that come, go or change are events, and those of the first look are not.
func TestSeen(t *testing.T) {
	var s seen
	look := func(second int64, states ...State) { s.look(time.Unix(second, 0), states) }
	look(0, State{"a", "ready", "good", 1}, State{"b", "ready", "good", 1})
	look(1, State{"a", "ready", "good", 1}, State{"b", "unreachable", "bad", 1})
	look(2, State{"a", "ready", "good", 1})
	look(3, State{"a", "ready", "good", 1}, State{"b", "joining", "busy", 2})
	look(4, State{"a", "ready", "good", 2}, State{"b", "joining", "busy", 2})
	var got []string
	for _, e := range s.list() {
		got = append(got, e.Kind+" "+e.Target)
	}
	if want := []string{"Node unreachable b", "Node gone b", "Node joining b", "Node restarted a"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for i := range int64(2 * maxSeen) {
		look(5+i, State{"a", "ready", "good", uint64(3 + i)})
	}
	if n := len(s.list()); n != maxSeen {
		t.Errorf("%d events, want %d", n, maxSeen)
	}
}
