package sim

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"
)

var (
	seed  = flag.Uint64("seed", 0, "play this one, and print what happened when")
	seeds = flag.Int("seeds", 0, "play so many new ones")
	first = flag.Uint64("first", 0, "play new ones from this on, instead of from one that the clock says")
	old   = flag.Bool("known", true, "play those that have ever failed, in addition to new ones")
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/weirlimit/weir/test/sim.stay"))
}

// everFailed lists the seeds that have ever failed, one per line.
const everFailed = "testdata/seeds.txt"

// TestSeeds plays plans drawn from seeds: the one that the flags ask for, or as many new ones as they ask for and all
// that have ever failed, or else the first few.
func TestSeeds(t *testing.T) {
	if *seed != 0 {
		play(t, *seed)
		return
	}
	from, n := uint64(1), few()
	if *seeds > 0 {
		if *old {
			for _, s := range known(t) {
				play(t, s)
			}
		}
		from, n = cmp.Or(*first, uint64(time.Now().UnixMicro())), *seeds
	}
	for i := range n {
		play(t, from+uint64(i))
	}
}

// few is how many runs a test makes that is not told: one in the short form, and with the race detector, which makes them many
// times slower.
func few() int {
	if testform.RaceEnabled || !testform.AllTests() {
		return 1
	}
	return 3
}

func known(t *testing.T) (seeds []uint64) {
	t.Helper()
	f, err := os.Open(everFailed)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		s, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", everFailed, err)
		}
		seeds = append(seeds, s)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return seeds
}

// play plays a seed as a test of its own. What is left behind panics with the seed.
func play(t *testing.T, seed uint64) {
	t.Run(fmt.Sprint(seed), func(t *testing.T) {
		t.Parallel()
		r := run(t, Draw(seed), Hooks{})
		for _, p := range slices.Concat(r.Broken, r.Exceeded) {
			t.Error(p)
		}
		if len(r.Undecided) > 0 {
			t.Errorf("undecided: %s", strings.Join(r.Undecided, "; "))
		}
		if t.Failed() {
			t.Logf("%v\n%s", r.Plan, strings.Join(r.Stories, "\n"))
			t.Logf("play it again: make sim SEED=%d", seed)
		}
	})
}

// run plays a plan in a bubble, and tells of it if asked to.
func run(t *testing.T, p Plan, hooks Hooks) (r *Result) {
	t.Helper()
	defer func() {
		if left := recover(); left != nil {
			panic(fmt.Sprintf("seed %d: %v", p.Seed, left))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = Run(p, hooks); err != nil {
			t.Fatal(err)
		}
	})
	t.Log(r.Summary())
	if *seed != 0 {
		t.Logf("what was to happen, and what did:\n%v\n%v", p, r.RunLog)
	}
	return r
}

// Where no counter moves, because the members stay the same under faults of network and etcd, no limit is
// exceeded.
func TestNoExcessWhileMembersStay(t *testing.T) {
	for s := range few() {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			r := run(t, Draw(uint64(s+1), append([]Kind{Slow, Reset, OneWay}, ofEtcd...)...), Hooks{})
			for _, p := range slices.Concat(r.Broken, r.Exceeded) {
				t.Error(p)
			}
		})
	}
}

// In peace all of it holds: the checks raise no false alarm.
func TestNoFaults(t *testing.T) {
	for s := range few() {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			p := Draw(uint64(s + 1))
			p.Faults, p.Hot, p.Leases = nil, s == 0, s <= 1
			r := run(t, p, Hooks{})
			for _, problem := range slices.Concat(r.Broken, r.Exceeded, r.Undecided) {
				t.Error(problem)
			}
			if p.Hot && r.Records.sources[weirv1.Source_SOURCE_LENT] < 1000 {
				t.Errorf("hardly anything is lent: %s", r.Summary())
			}
			if r.Records.denied < r.Records.checks/5 {
				t.Errorf("the load is too small to show anything: %s", r.Summary())
			}
		})
	}
}

// While nodes only come and go as planned, no limit is exceeded, and nothing is undecided.
func TestPlannedChanges(t *testing.T) {
	for s := range few() {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			r := run(t, Draw(*first+uint64(s+1), Join, Drain, Restart, Reset, Slow), Hooks{})
			for _, p := range slices.Concat(r.Broken, r.Exceeded, r.Undecided) {
				t.Error(p)
			}
		})
	}
}
