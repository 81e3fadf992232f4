package ui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// What several nodes have seen at about the same time is one row; what callers have asked for never is.
func TestTimeline(t *testing.T) {
	at := time.Unix(1000, 0)
	seen := func(second int, node, what, target string) Event {
		return Event{At: at.Add(time.Duration(second) * time.Second), Node: node, Kind: what, Target: target, Outcome: "seen"}
	}
	asked := func(second int, node, what string) Event {
		return Event{At: at.Add(time.Duration(second) * time.Second), Node: node, Kind: what, Target: "posts", Caller: "ana", Outcome: "OK"}
	}
	var got []string
	for _, row := range timeline([]Event{
		seen(3, "b", "Node unreachable", "c"), seen(2, "a", "Node unreachable", "c"), seen(20, "a", "Node unreachable", "c"), seen(3, "a", "Node gone", "c"),
		asked(1, "a", "Rule changed"), asked(2, "b", "Rule changed"), seen(21, "a", "Node unreachable", "c"),
	}) {
		got = append(got, fmt.Sprintf("%d %s %s", row.At.Unix()-1000, row.Kind, strings.Join(row.Nodes, "+")))
	}
	want := []string{"21 Node unreachable a", "20 Node unreachable a", "3 Node gone a", "2 Rule changed b", "2 Node unreachable a+b", "1 Rule changed a"}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var many []Event
	for i := range 3 * maxEvents {
		many = append(many, asked(i, "a", "Rule changed"))
	}
	if rows := timeline(many); len(rows) != maxEvents || !rows[0].At.Equal(many[len(many)-1].At) {
		t.Errorf("%d rows, the newest of %v", len(rows), rows[0].At)
	}
}
