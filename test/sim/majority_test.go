package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
)

// A majority that has lost etcd decides on, and the minority that has kept it takes none of the majority's partitions: two
// nodes never decide in one partition.
func TestMajorityWithoutEtcd(t *testing.T) {
	for i, tc := range []struct{ start, group []string }{
		{[]string{"a", "b", "c"}, []string{"a", "b"}},
		{[]string{"a", "b", "c"}, []string{"b", "c"}},
		{[]string{"a", "b", "c", "d", "e"}, []string{"c", "d", "e"}},
		{[]string{"a", "b", "c", "d", "e"}, []string{"a", "c", "d"}},
	} {
		t.Run(fmt.Sprintf("%d of %d", len(tc.group), len(tc.start)), func(t *testing.T) {
			if i > 0 {
				testform.NotInBrief(t)
			}
			t.Parallel()
			p := Plan{Seed: 1, Start: tc.start, Calm: settle + 35*time.Second, Faults: []Fault{
				{Kind: Exile, At: settle, For: 25 * time.Second, Group: tc.group},
			}}
			r := run(t, p, Hooks{})
			for _, problem := range append(r.Broken, r.Exceeded...) {
				t.Error(problem)
			}
		})
	}
}
