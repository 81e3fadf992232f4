package rules

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/ring"
)

func TestEnforced(t *testing.T) {
	for _, c := range []struct {
		lo   uint64
		from int64 // the least percentage that enforces it
	}{
		{0, 1},
		{1<<32 - 1, 1}, // the low half does not matter
		{42949672 << 32, 1},
		{42949673 << 32, 2}, // 1 % of 2^32 is 42949672.96
		{1 << 63, 51},
		{1<<64 - 1, 100},
	} {
		for percent := range int64(101) {
			if got := enforced(ring.Key{Hi: 42, Lo: c.lo}, percent); got != (percent >= c.from) {
				t.Errorf("enforced(%#x, %d) is %t", c.lo, percent, got)
			}
		}
	}
}

// The same users stay enforced when the percentage is raised, as many as it says,
// and with all limits of the rule.
func TestEnforcedUsersGrowWithPercentage(t *testing.T) {
	const users = 10_000
	before := make(map[int]bool)
	for _, percent := range []int{0, 1, 20, 50, 99, 100} {
		set := parse(t, oneRule(fmt.Sprintf("{id: r, per: [user], limits: [{limit: 1, window: 1s}, {limit: 2, window: 1m}], enforce: %d}", percent)))
		enforced := make(map[int]bool)
		for user := range users {
			ms := set.Match(testHasher, request("d", fmt.Sprint("user=", user)), nil)
			if len(ms) != 2 || ms[0].Shadow != ms[1].Shadow {
				t.Fatalf("%d matches of user %d", len(ms), user)
			}
			if !ms[0].Shadow {
				enforced[user] = true
			} else if before[user] {
				t.Errorf("user %d is not enforced at %d %% any more", user, percent)
			}
		}
		if want := users * percent / 100; len(enforced) < want-200 || len(enforced) > want+200 || percent%100 == 0 && len(enforced) != want {
			t.Errorf("%d of %d users at %d %%", len(enforced), users, percent)
		}
		before = enforced
	}
}
