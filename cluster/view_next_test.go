package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/ring"
)

// parseNodes reads "a b/joining c/leaving d@2": ids, states and incarnations.
func parseNodes(s string) (nodes []Node) {
	for _, f := range strings.Fields(s) {
		n := Node{State: Ready, Incarnation: 1}
		f, state, found := strings.Cut(f, "/")
		if found {
			n.State = State(state)
		}
		id, inc, found := strings.Cut(f, "@")
		if found {
			n.Incarnation, _ = strconv.ParseUint(inc, 10, 64) // 0 shows
		}
		n.ID, n.Address = id, id+":1"
		nodes = append(nodes, n)
	}
	return nodes
}

func parseView(s string) *View {
	if s == "" {
		return nil
	}
	v := &View{Number: 1}
	for _, n := range parseNodes(s) {
		v.Members = append(v.Members, Member{ID: n.ID, Address: n.Address, Incarnation: n.Incarnation, Leaving: n.State == Leaving})
	}
	return v
}

func formatMembers(members []Member) string {
	var s []string
	for _, m := range members {
		text := m.ID
		if m.Incarnation != 1 {
			text += fmt.Sprintf("@%d", m.Incarnation)
		}
		if m.Leaving {
			text += "/leaving"
		}
		s = append(s, text)
	}
	return strings.Join(s, " ")
}

func TestNextMembers(t *testing.T) {
	for _, tc := range []struct {
		view, nodes, gone string
		want              string // members, and in brackets what there is to know
	}{
		{"", "a", "", "a [joins]"},
		{"", "a/joining", "", " []"},
		{"", "b c/joining d", "", "b d [joins]"},
		{"a", "a", "", " []"},
		{"a", "a b", "", "a b [joins]"},
		{"a b", "a b@2", "", "a b@2 [urgent] b lost"},
		{"a b", "a b@2/joining", "", " []"},
		{"a b", "a b@2/joining c", "", "a b c [joins]"},
		{"a b", "a b/leaving", "", "a b/leaving [urgent]"},
		{"a b/leaving", "a b/leaving", "", " []"},
		{"a b/leaving", "a b/left", "", "a [urgent]"},
		{"a b", "a b/left", "", "a [urgent]"}, // one that came and went
		{"a b/leaving", "a", "", " [suspect]"},
		{"a b/leaving", "a", "b", "a [drops] b lost"},
		{"a b/leaving", "a b@2", "", "a b@2 [urgent] b lost"},
		{"a b/leaving", "a b@2/joining", "", " []"},
		{"a b", "a b@2/leaving", "", " []"}, // it never was ready
		{"a/leaving b", "a/leaving b/leaving", "", " [urgent]"},
		{"a b", "a/leaving b/leaving", "", " [urgent]"},
		{"a b", "a", "", " [suspect]"},
		{"a b", "a", "b", "a [drops] b lost"},
		{"a b c", "a", "b c", "a c [drops suspect] b lost"}, // one third at a time
		{"a b c d e f", "a", "b c d e f", "a d e f [drops suspect] b c lost"},
		{"a b c", "a c/leaving", "b", "a c/leaving [urgent drops] b lost"},
		{"a b c", "", "", " [suspect]"}, // etcd has lost all keys
		{"a b", "a c", "b", "a c [joins drops] b lost"},
		{"", "a b c d e f g h", "", "a b c d e f [joins] 2 left out"},
		{"c d e f g", "a b c d e f g", "", "a c d e f g [joins] 1 left out"},
		{"b c d e f g", "a b c d e f g", "", " [] 1 left out"},
		{"a b c d e f g", "a b c d e f g h", "", " [] 1 left out"},
		{"b c d e f g", "a b c d e f/leaving g", "", "a b c d e f/leaving g [joins urgent]"},
	} {
		c := nextMembers(parseView(tc.view), parseNodes(tc.nodes), 6, func(id string) bool {
			return slices.Contains(strings.Fields(tc.gone), id)
		})
		var notes []string
		for _, n := range []struct {
			name string
			set  bool
		}{{"joins", c.joins}, {"urgent", c.urgent}, {"drops", c.drops}, {"suspect", c.suspect}} {
			if n.set {
				notes = append(notes, n.name)
			}
		}
		got := fmt.Sprintf("%s %v", formatMembers(c.members), notes)
		if len(c.lost) > 0 {
			got += fmt.Sprintf(" %s lost", strings.Join(c.lost, " "))
		}
		if c.leftOut > 0 {
			got += fmt.Sprintf(" %d left out", c.leftOut)
		}
		if got != tc.want {
			t.Errorf("view (%s), nodes (%s), gone (%s): %s, want %s", tc.view, tc.nodes, tc.gone, got, tc.want)
		}
	}
}

func TestWriter(t *testing.T) {
	for _, tc := range []struct{ view, nodes, want string }{
		{"", "", ""},
		{"", "a/joining b c", "b"},
		{"b c", "a b c", "b"}, // a is new and knows no member yet
		{"b c", "a c", "c"},
		{"b c", "a", "a"}, // the members are all gone
		{"b c", "b/leaving c", "c"},
		{"b", "b/leaving", ""},
	} {
		if got := writer(parseView(tc.view), parseNodes(tc.nodes)); got != tc.want {
			t.Errorf("view (%s), nodes (%s): %q, want %q", tc.view, tc.nodes, got, tc.want)
		}
	}
}

// However many keys are gone at once, and with any nodes that answer, no view drops more than
// a third of the members without their word.
func TestNeverDropsMoreThanAThird(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		view := &View{Number: 1}
		var nodes []Node
		for i := range rapid.IntRange(1, 30).Draw(t, "members") {
			id := fmt.Sprintf("n%02d", i)
			view.Members = append(view.Members, Member{ID: id, Address: id, Incarnation: 1})
			if rapid.Bool().Draw(t, "key") {
				nodes = append(nodes, Node{ID: id, Address: id, Incarnation: 1, State: Ready})
			}
		}
		gone := rapid.Bool()
		c := nextMembers(view, nodes, ring.DefaultParams.MaxMembers(), func(string) bool { return gone.Draw(t, "gone") })
		if c.members == nil {
			return
		}
		if dropped := len(view.Members) - len(c.members); dropped > max(1, len(view.Members)/3) {
			t.Fatalf("%d of %d dropped", dropped, len(view.Members))
		}
		for _, n := range nodes {
			if !slices.ContainsFunc(c.members, func(m Member) bool { return m.ID == n.ID }) {
				t.Fatalf("%s has a key and was dropped", n.ID)
			}
		}
	})
}
