package cluster

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// day is a cluster of three nodes that share a limit of 1000 per day, and what one counter of it is to
// decide.
type day struct {
	t       *testing.T
	c       *testCluster
	hot     shard.Take
	asked   int
	granted int64
	first   int64 // granted until the first denial, with what was asked for at once; -1 until then

	exact algorithms.Long  // the dumb twin: what is granted must have room when it is, in one counter
	state algorithms.State // likewise, if the algorithm is not long
	told  []int64          // remaining, of the last answers
}

// ask asks a node, so often at once.
func (d *day) ask(node, times int) {
	groups := make([]shard.Group, times)
	for i := range groups {
		groups[i].Takes = []shard.Take{d.hot}
	}
	d.c.nodes[node].router.Decide(d.t.Context(), groups)
	d.tell(groups)
}

// burst asks all nodes at once, each of so many callers for itself.
func (d *day) burst(callers int) {
	groups := make([]shard.Group, callers)
	var all sync.WaitGroup
	for i := range groups {
		all.Go(func() {
			groups[i].Takes = []shard.Take{d.hot}
			d.c.nodes[i%3].router.Decide(context.Background(), groups[i:i+1])
		})
	}
	all.Wait()
	d.tell(groups)
}

func (d *day) tell(groups []shard.Group) {
	denied := false
	for i := range groups {
		d.asked++
		if !groups[i].Allowed {
			denied = true
			continue
		}
		d.granted++
		if twin := d.twin(1); !twin.Allowed {
			d.t.Fatalf("the %d. was granted and has no room: %+v", d.granted, twin)
		}
		d.told = append(d.told, groups[i].Takes[0].Decision.Remaining)
	}
	if denied && d.first < 0 {
		d.first = d.granted
	}
}

// twin asks the twin for so many tokens.
func (d *day) twin(cost int64) (verdict algorithms.Decision) {
	now := time.Now().UnixNano()
	if d.hot.Limit.Algorithm.Long() {
		return d.exact.Step(&d.hot.Limit, now, cost, cost > 0)
	}
	d.state, verdict = algorithms.Step(&d.hot.Limit, d.state, now, cost)
	return verdict
}

// exactly checks that all that was told since is what the twin has left, after each.
func (d *day) exactly() {
	left := d.twin(0).Remaining
	for i, told := range slices.Backward(d.told) {
		if want := left + int64(len(d.told)-1-i); told != want {
			d.t.Fatalf("%d remaining, the twin has %d", told, want)
		}
	}
	d.told = d.told[:0]
}

// For each pattern of checks, a limit is granted when it is asked for: all of it in the end, and 99.5 % before the
// first denial; and never more than the algorithm allows. What remains is told right.
func TestWorkloadPatterns(t *testing.T) {
	patterns := map[string]func(d *day){
		"bursts over all nodes": func(d *day) {
			last := int64(1000)
			for d.asked < 1500 {
				d.burst(20)
				for _, told := range d.told {
					if told > last {
						d.t.Fatalf("%d remaining, in the burst before %d", told, last)
					}
				}
				if len(d.told) > 0 {
					last = slices.Min(d.told)
				}
				if left := d.twin(0).Remaining; last < left {
					d.t.Fatalf("%d remaining, the twin has %d", last, left)
				}
				d.told = d.told[:0]
				time.Sleep(100 * time.Millisecond)
			}
		},
		"bursts on one node after the other": func(d *day) {
			for i := 0; d.asked < 1500; i++ {
				d.ask(i%3, 20)
				time.Sleep(30 * time.Millisecond)
			}
		},
		"one caller that hops, at once": func(d *day) {
			for i := 0; d.asked < 1500; i++ {
				d.ask(i%3, 1)
				d.exactly()
				time.Sleep(50 * time.Microsecond)
			}
		},
		"one caller that hops now and then": func(d *day) {
			r := rand.New(rand.NewPCG(1, 2))
			for node := 0; d.asked < 1500; {
				d.ask(node, 1)
				d.exactly()
				if r.IntN(9) == 0 {
					node = r.IntN(3)
				}
				time.Sleep(time.Duration(r.IntN(4)) * time.Millisecond)
			}
		},
		"two callers": func(d *day) {
			for i := 0; d.asked < 1500; i++ {
				d.ask(i%3, 1)
				d.ask(2, 3)
				time.Sleep(time.Millisecond)
			}
		},
		"a flood": func(d *day) {
			for d.asked < 3000 {
				d.burst(100)
				time.Sleep(time.Millisecond)
			}
		},
		"now and then a lot": func(d *day) {
			r := rand.New(rand.NewPCG(3, 4))
			for d.asked < 2000 {
				d.ask(r.IntN(3), 1+r.IntN(40))
				d.burst(r.IntN(50))
				time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
			}
		},
	}
	for name, pattern := range patterns {
		for _, a := range algorithms.Names() {
			t.Run(name+"/"+a, func(t *testing.T) {
				inCluster(t, func(t *testing.T, c *testCluster) {
					algorithm, _ := algorithms.Parse(a)
					d := &day{t: t, c: c, first: -1, hot: shard.Take{
						Key: c.ownedBy(c.nodes[1], 0), Cost: 1,
						Limit: algorithms.Limit{Algorithm: algorithm, Limit: 1000, Window: int64(24 * time.Hour)},
					}}
					pattern(d)
					if d.first < 995 || d.granted < 1000 {
						t.Errorf("%d granted before the first denial, %d in all", d.first, d.granted)
					}
					time.Sleep(2*idleLease + time.Millisecond)
					synctest.Wait()
					if out := c.nodes[1].out(t); out != 0 {
						t.Errorf("%d tokens are lent in the end", out)
					}
				})
			})
		}
	}
}

// Of counters of which some are asked for much more often than others, all are granted in full, and none more.
func TestSkewedWorkload(t *testing.T) {
	for _, a := range []algorithms.Algorithm{algorithms.SlidingWindow, algorithms.TokenBucket, algorithms.GCRA} {
		inCluster(t, func(t *testing.T, c *testCluster) {
			r := rand.New(rand.NewPCG(5, 6))
			zipf := rand.NewZipf(r, 1.3, 1, 200)
			asked, granted := make([]int64, 201), make([]int64, 201)
			limit := algorithms.Limit{Algorithm: a, Limit: 1000, Window: int64(24 * time.Hour)}
			for range 3000 {
				groups, who := make([]shard.Group, 10), make([]uint64, 10)
				for i := range groups {
					who[i] = zipf.Uint64()
					groups[i].Takes = []shard.Take{{Key: ring.Key{Hi: who[i] << 32, Lo: who[i]}, Limit: limit, Cost: 1}}
				}
				c.nodes[r.IntN(3)].router.Decide(t.Context(), groups)
				for i := range groups {
					if asked[who[i]]++; groups[i].Allowed {
						granted[who[i]]++
					}
				}
				time.Sleep(300 * time.Microsecond)
			}
			for i := range asked {
				if granted[i] != min(asked[i], 1000) {
					t.Errorf("%v: counter %d: %d granted of %d", a, i, granted[i], asked[i])
				}
			}
			if c.fromLeases() < 100 {
				t.Errorf("%v: %v checks were decided from leases", a, c.fromLeases())
			}
		})
	}
}
