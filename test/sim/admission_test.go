package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
)

// A node whose clock is an hour ahead would grant again the tokens of all its keys. It does not become a
// member.
func TestClockFarAhead(t *testing.T) {
	p := Plan{Seed: 1, Start: []string{"a", "b", "c"}, Calm: settle + 15*time.Second, Faults: []Fault{
		{Kind: Ahead, At: settle, For: 12 * time.Second, Node: "x", Delay: farAhead},
		{Kind: Drain, At: settle + 6*time.Second, Node: "a"},
	}}
	r := run(t, p, Hooks{})
	for _, problem := range append(r.Broken, r.Exceeded...) {
		t.Error(problem)
	}
}

// A node that no other reaches at the address that it advertises does not become a member.
func TestNodeThatIsNotReached(t *testing.T) {
	p := Plan{Seed: 1, Start: []string{"a", "b", "c"}, Calm: settle + 15*time.Second, Faults: []Fault{
		{Kind: Hidden, At: settle, For: 12 * time.Second, Node: "y"},
		{Kind: Flash, At: settle + 5*time.Second, Node: "a"},
	}}
	r := run(t, p, Hooks{})
	for _, problem := range slices.Concat(r.Broken, r.Exceeded, r.Undecided) {
		t.Error(problem)
	}
}

// A node at a dead member's address is not taken for that member, be it a new one or of another cluster.
func TestAddressOfADeadMember(t *testing.T) {
	for _, f := range []Fault{
		{Kind: Reused, For: 500 * time.Millisecond, Other: "d"},
		{Kind: Foreign, For: 12 * time.Second},
	} {
		for _, id := range []string{"a", "c"} {
			f := f // its own in each test
			f.At, f.Node = settle+2*time.Second, id
			t.Run(fmt.Sprint(f), func(t *testing.T) {
				if id != "a" || f.Kind != Foreign {
					testform.NotInBrief(t)
				}
				t.Parallel()
				r := run(t, Plan{Seed: 1, Start: []string{"a", "b", "c"}, Calm: settle + 20*time.Second, Faults: []Fault{f}}, Hooks{})
				for _, problem := range slices.Concat(r.Broken, r.Exceeded, r.Undecided) {
					t.Error(problem)
				}
			})
		}
	}
}
