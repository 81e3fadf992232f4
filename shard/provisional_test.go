package shard

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// provisionally decides one group in provisional service.
func provisionally(s *Shard, takes ...Take) Group {
	g := []Group{{Takes: takes, Provisional: true}}
	s.Decide(g)
	return g[0]
}

func used(s *Shard, k ring.Key, l algorithms.Limit) int64 {
	g := []Group{{Takes: []Take{{Key: k, Limit: l}}, Peek: true, Provisional: true}}
	s.Decide(g)
	return l.Capacity() - g[0].Takes[0].Decision.Remaining
}

// everyLimit has one limit of every algorithm.
func everyLimit(limit int64) (all []algorithms.Limit) {
	for a := algorithms.SlidingWindow; a <= algorithms.LeakyBucket; a++ {
		all = append(all, algorithms.Limit{Algorithm: a, Limit: limit, Window: int64(time.Hour)})
	}
	return all
}

// newPair returns an owner of one partition and its standby, with a copy.
func newPair(t testing.TB) (owner, standby *Shard) {
	owner = newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
	standby = newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
	standby.Seal(0)
	owner.Follow(0, ToStandby)
	drain(t, owner, standby, 0, ToStandby)
	return owner, standby
}

func TestProvisional(t *testing.T) {
	for _, l := range everyLimit(10) {
		synctest.Test(t, func(t *testing.T) {
			owner, standby := newPair(t)
			k := key("k", 0)
			want := func(what string, s *Shard, n int64) {
				t.Helper()
				if got := used(s, k, l); got != n {
					t.Errorf("%v, %s: %d used, want %d", l.Algorithm, what, got, n)
				}
			}
			ask(owner, k, l, 4)
			drain(t, owner, standby, 0, ToStandby)
			if g := []Group{{Takes: []Take{{Key: k, Limit: l, Cost: 3}}, Provisional: true, Peek: true}}; true {
				if standby.Decide(g); !g[0].Allowed || g[0].Takes[0].Source != Provisional || len(standby.TakeGrants(0, 9)) != 0 {
					t.Errorf("%v, a peek: %+v", l.Algorithm, g[0])
				}
			}
			if g := provisionally(standby, Take{Key: k, Limit: l, Cost: 3}); !g.Allowed || g.Takes[0].Source != Provisional || g.Takes[0].Decision.Remaining != 3 {
				t.Errorf("%v: %+v", l.Algorithm, g)
			}
			if g := provisionally(standby, Take{Key: k, Limit: l, Cost: 4}); g.Allowed || g.Takes[0].Source != Provisional {
				t.Errorf("%v: %+v", l.Algorithm, g)
			}
			if g := []Group{{Takes: []Take{{Key: k, Limit: l, Cost: 1}}}}; true {
				if standby.Decide(g); g[0].Allowed || g[0].Takes[0].Source != Redirected {
					t.Errorf("%v, not provisionally: %+v", l.Algorithm, g[0])
				}
			}
			ask(owner, k, l, 2)
			drain(t, owner, standby, 0, ToStandby)
			want("what the owner has sent, and what is apart", standby, 6+3)
			grants := standby.TakeGrants(0, 9)
			if len(grants) != 1 || len(standby.TakeGrants(0, 9)) != 0 || standby.grantBytes.Load() != 0 {
				t.Fatalf("%v: %+v, %d bytes", l.Algorithm, grants, standby.grantBytes.Load())
			}
			want("taken away", standby, 9)
			owner.Follow(0, ToStandby)
			drain(t, owner, standby, 0, ToStandby)
			want("taken away, and under way while the owner sends all it has", standby, 9)
			standby.Clear(0)
			want("taken away, and the copy cleared", standby, 3)
			owner.Follow(0, ToStandby)
			if moved := standby.AddGrants(grants); len(moved) != 1 || moved[0].Key != k {
				t.Errorf("%v: to a sealed partition: %+v", l.Algorithm, moved)
			}
			if moved := owner.AddGrants(grants); len(moved) != 0 {
				t.Errorf("%v: %+v", l.Algorithm, moved)
			}
			want("added", owner, 9)
			standby.Underway(0, nil)
			drain(t, owner, standby, 0, ToStandby)
			want("what the owner has sent, once", standby, 9)
			if ask(owner, k, l, 2).Allowed || !ask(owner, k, l, 1).Allowed {
				t.Errorf("%v: 10 are not 9 and 1", l.Algorithm)
			}
		})
	}
}

// A copy counts the grants of another standby until records of the owner are laid over it. What this one grants from it comes on top.
func TestAddGrantsToCopy(t *testing.T) {
	for _, l := range everyLimit(10) {
		synctest.Test(t, func(t *testing.T) {
			owner, standby := newPair(t)
			former := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
			former.Seal(0)
			k := key("k", 0)
			ask(owner, k, l, 2)
			drain(t, owner, standby, 0, ToStandby)
			provisionally(former, Take{Key: k, Limit: l, Cost: 3})
			grants := former.TakeGrants(0, 9)
			standby.AddGrantsToCopy(0, grants)
			if got := used(standby, k, l); got != 5 {
				t.Errorf("%v: %d used, want 2 and 3", l.Algorithm, got)
			}
			if g := provisionally(standby, Take{Key: k, Limit: l, Cost: 6}); g.Allowed {
				t.Errorf("%v: 6 of the 5 that are left are granted", l.Algorithm)
			}
			if g := provisionally(standby, Take{Key: k, Limit: l, Cost: 4}); !g.Allowed || g.Takes[0].Decision.Remaining != 1 {
				t.Errorf("%v: %+v", l.Algorithm, g)
			}
			ask(owner, k, l, 1)
			drain(t, owner, standby, 0, ToStandby)
			if got := used(standby, k, l); got != 3+4 {
				t.Errorf("%v: %d used after records of the owner, want its 3 and 4 of the standby", l.Algorithm, got)
			}
			owner.AddGrantsToCopy(0, grants)
			if got := used(owner, k, l); got != 3 {
				t.Errorf("%v: %d used where the partition is no copy, want 3", l.Algorithm, got)
			}
		})
	}
}

// A withheld copy decides nothing, and accepts records meanwhile.
func TestWithheldCopy(t *testing.T) {
	owner, standby := newPair(t)
	k, l := key("k", 0), everyLimit(10)[0]
	ask(owner, k, l, 4)
	drain(t, owner, standby, 0, ToStandby)
	standby.Withhold(0, true)
	if g := provisionally(standby, Take{Key: k, Limit: l, Cost: 1}); g.Allowed || g.Takes[0].Source != Redirected || standby.HasGrants(0) {
		t.Errorf("withheld: %+v", g)
	}
	ask(owner, k, l, 1)
	drain(t, owner, standby, 0, ToStandby)
	standby.Withhold(0, false)
	if g := provisionally(standby, Take{Key: k, Limit: l, Cost: 3}); !g.Allowed || g.Takes[0].Decision.Remaining != 2 || !standby.HasGrants(0) {
		t.Errorf("not withheld any more: %+v", g)
	}
	standby.Withhold(0, true)
	standby.Unseal(0)
	if !ask(standby, k, l, 2).Allowed || ask(standby, k, l, 1).Allowed || standby.HasGrants(0) {
		t.Error("an open partition does not decide as one, or has provisional grants")
	}
	standby.Seal(0)
	if g := provisionally(standby, Take{Key: key("another", 0), Limit: l, Cost: 1}); !g.Allowed || g.Takes[0].Source != Provisional {
		t.Errorf("sealed after it was unsealed: %+v", g)
	}
}

// provisionalKeys is one of every algorithm.
const provisionalKeys = 7

// provisionalStep is one thing that happens in TestProvisionalGrantsAddUp.
type provisionalStep struct {
	what, key int
	cost      int64
}

var provisionalSteps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) provisionalStep {
	return provisionalStep{
		what: rapid.IntRange(0, 11).Draw(t, "what"),
		key:  rapid.IntRange(0, provisionalKeys-1).Draw(t, "key"),
		cost: rapid.Int64Range(-4, 6).Draw(t, "cost"),
	}
}), 1, 60)

// provisionalTwin keeps three numbers per counter: the tokens that the owner counts, those last sent to the
// standby, and those of the provisional grant.
type provisionalTwin struct{ owner, copied, apart int64 }

// In any sequence of takes of owner and standby, the standby's copy is the last state sent plus the
// provisional grants, and no grant is lost or counted twice.
func TestProvisionalGrantsAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := provisionalSteps.Draw(rt, "steps")
		var problem string
		synctest.Test(t, func(t *testing.T) { problem = checkProvisional(t, steps) })
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

// What a copy grants of a bucket adds up at the owner, in however many parts it comes: the bucket drains once.
func TestPartsOfABucketAddUp(t *testing.T) {
	for a := algorithms.TokenBucket; a <= algorithms.LeakyBucket; a++ {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				owner, standby := newPair(t)
				k, l := key("k", 0), algorithms.Limit{Algorithm: a, Limit: 20, Burst: 40, Window: int64(10 * time.Second)}
				ask(owner, k, l, 30)
				drain(t, owner, standby, 0, ToStandby)
				for range 4 {
					for range 3 { // a token has drained each time before the next one comes
						time.Sleep(600 * time.Millisecond)
						if g := provisionally(standby, Take{Key: k, Limit: l, Cost: 1}); !g.Allowed {
							t.Fatalf("%+v", g)
						}
					}
					owner.AddGrants(standby.TakeGrants(0, 100))
				}
				if got, want := used(owner, k, l), used(standby, k, l); got != want {
					t.Errorf("the owner has %d tokens in use, its standby %d", got, want)
				}
			})
		})
	}
}

func checkProvisional(t testing.TB, steps []provisionalStep) string {
	const limit = 1000 // never reached
	limits := everyLimit(limit)
	var twin [provisionalKeys]provisionalTwin
	owner, standby := newPair(t)
	keyOf := func(i int) (ring.Key, algorithms.Limit) { return key("k", i), limits[i%len(limits)] }
	deliver := func(most int) string {
		defer standby.Underway(0, nil)
		grants := standby.TakeGrants(0, most)
		if most%2 == 1 { // the owner goes on before it is told
			owner.Follow(0, ToStandby)
			drain(t, owner, standby, 0, ToStandby)
			for i := range twin {
				twin[i].copied = twin[i].owner
				if k, l := keyOf(i); used(standby, k, l) != twin[i].copied+twin[i].apart {
					return fmt.Sprintf("%v: while grants are under way the copy has %d, want %+v", l.Algorithm, used(standby, k, l), twin[i])
				}
			}
		}
		for _, g := range grants {
			for i := range twin {
				if k, _ := keyOf(i); k == g.Key {
					twin[i].owner += twin[i].apart
					twin[i].apart = 0
				}
			}
			if moved := owner.AddGrants([]Grant{g}); len(moved) != 0 {
				return "the owner is open"
			}
		}
		return ""
	}
	for _, x := range steps {
		k, l := keyOf(x.key)
		n := &twin[x.key]
		take := Take{Key: k, Limit: l, Cost: x.cost}
		switch x.what {
		case 0, 1:
			ask(owner, k, l, x.cost)
			n.owner = max(0, n.owner+x.cost)
		case 2, 3, 4, 5:
			provisionally(standby, take)
			n.apart = max(0, n.apart+x.cost)
		case 6: // two of one counter, and another that may deny both
			other, ol := keyOf((x.key + 1) % len(twin))
			g := provisionally(standby, take, take, Take{Key: other, Limit: ol, Cost: []int64{1, 2 * limit}[x.key%2]})
			if g.Takes[0].Cost != x.cost {
				return "its cost was changed"
			}
			if g.Allowed {
				twin[(x.key+1)%len(twin)].apart++
				n.apart = max(0, n.apart+2*x.cost)
			}
		case 7: // what another node has denied
			if x.cost > 0 {
				standby.Return(provisionally(standby, take).Takes)
			}
		case 8, 9:
			drain(t, owner, standby, 0, ToStandby)
			for i := range twin {
				twin[i].copied = twin[i].owner
			}
			for i, n := range twin {
				k, l := keyOf(i)
				if got := used(standby, k, l); got != n.copied+n.apart {
					return fmt.Sprintf("%v: the copy has %d, want %+v", l.Algorithm, got, n)
				}
			}
		default:
			if problem := deliver(1 + x.key); problem != "" {
				return problem
			}
		}
	}
	if problem := deliver(100); problem != "" {
		return problem
	}
	for i, n := range twin {
		k, l := keyOf(i)
		if got := used(owner, k, l); got != n.owner {
			return fmt.Sprintf("%v: the owner has %d, want %+v", l.Algorithm, got, n)
		}
	}
	if standby.grantBytes.Load() != 0 {
		return fmt.Sprintf("%d bytes of nothing", standby.grantBytes.Load())
	}
	return consistent(owner) + consistent(standby)
}

// A copy's counters can be replaced, but its provisional grants stay.
func TestGrantsOutliveTheCopy(t *testing.T) {
	for name, forget := range map[string]func(owner, standby *Shard, takes []Take){
		"reset": func(owner, _ *Shard, takes []Take) { owner.Decide([]Group{{Takes: takes, Reset: true}}) },
		"all that there is": func(owner, _ *Shard, takes []Take) {
			owner.Decide([]Group{{Takes: takes, Reset: true}})
			owner.Follow(0, ToStandby)
		},
		"cleared": func(_, standby *Shard, _ []Take) { standby.Clear(0) },
	} {
		synctest.Test(t, func(t *testing.T) {
			owner, standby := newPair(t)
			var takes []Take
			for i, l := range everyLimit(10) {
				takes = append(takes, Take{Key: key("k", i), Limit: l, Cost: 4})
			}
			owner.Decide([]Group{{Takes: takes}})
			drain(t, owner, standby, 0, ToStandby)
			for _, take := range takes {
				take.Cost = 3
				provisionally(standby, take)
			}
			forget(owner, standby, takes)
			drain(t, owner, standby, 0, ToStandby)
			for _, take := range takes {
				if got := used(standby, take.Key, take.Limit); got != 3 {
					t.Errorf("%s, %v: %d used, want 3", name, take.Limit.Algorithm, got)
				}
			}
			if d := consistent(standby); d != "" {
				t.Error(d)
			}
			if n := len(standby.TakeGrants(0, 100)); n != len(takes) {
				t.Errorf("%s: %d grants", name, n)
			}
		})
	}
}

// A group that touches sealed and unsealed partitions is decided as one, and only takes of the sealed ones
// are provisional.
func TestProvisionalGroupAcrossPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 2, MaxBytes: MinBytes(2)})
		s.Seal(1)
		open, closed := Take{Key: in(s, 0, 0), Limit: perHour(10), Cost: 6}, Take{Key: in(s, 1, 0), Limit: perHour(10), Cost: 4}
		if g := provisionally(s, open, closed); !g.Allowed || g.Takes[0].Source != Owner || g.Takes[1].Source != Provisional {
			t.Errorf("%+v", g)
		}
		if g := provisionally(s, open, closed); g.Allowed || !g.Takes[1].Decision.Allowed {
			t.Errorf("%+v", g)
		}
		if n := testutil.ToFloat64(s.metrics.granted); n != 1 {
			t.Errorf("%v grants counted", n)
		}
		if a, b := s.TakeGrants(0, 9), s.TakeGrants(1, 9); len(a) != 0 || len(b) != 1 || b[0].Key != closed.Key || b[0].Limit != closed.Limit {
			t.Errorf("%+v, %+v", a, b)
		}
		if used(s, open.Key, open.Limit) != 6 || used(s, closed.Key, closed.Limit) != 4 {
			t.Errorf("%d and %d used", used(s, open.Key, open.Limit), used(s, closed.Key, closed.Limit))
		}
	})
}

// Provisional decisions neither reset the owner's counters nor lease its tokens.
func TestProvisionalRefusesResetAndLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1)})
		s.Seal(0)
		take := takeOf("a", perHour(1000), 1)
		g := []Group{
			{Takes: []Take{take}, Reset: true, Provisional: true},
			{Takes: []Take{{Key: take.Key, Limit: take.Limit, Cost: -1}}, LentAt: s.now(), Provisional: true},
			{Takes: []Take{take}, Lend: 10, Tokens: 1, Provisional: true},
		}
		s.Decide(g)
		if g[0].Allowed || g[0].Takes[0].Source != Redirected || g[1].Allowed || g[1].Takes[0].Source != Redirected {
			t.Errorf("%+v, %+v", g[0], g[1])
		}
		if !g[2].Allowed || g[2].TokenLease != (TokenLease{}) || g[2].Takes[0].Decision.Remaining != 999 {
			t.Errorf("%+v", g[2])
		}
	})
}

// Without a decision lease an unsealed partition decides provisionally, too. If it is sealed then, its
// grants are sent; if not, they count where they are.
func TestProvisionalWithoutDecisionLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1)})
		take := takeOf("a", perHour(10), 1)
		grant := func() {
			t.Helper()
			s.SetDecisionLease(time.Now())
			if g := provisionally(s, take); !g.Allowed || g.Takes[0].Source != Provisional || len(s.TakeGrants(0, 9)) != 0 {
				t.Errorf("%+v", g)
			}
		}
		grant()
		s.SetDecisionLease(time.Now().Add(time.Second))
		if g := provisionally(s, take); g.Takes[0].Source != Owner {
			t.Errorf("with a decision lease: %+v", g)
		}
		if s.Seal(0); len(s.TakeGrants(0, 9)) != 0 || s.grantBytes.Load() != 0 {
			t.Error("they were counted already")
		}
		s.Unseal(0)
		grant()
		s.Seal(0)
		s.SetDecisionLease(time.Now().Add(time.Second))
		if grants := s.TakeGrants(0, 9); len(grants) != 1 {
			t.Errorf("%+v", grants)
		}
		grant2 := provisionally(s, take)
		s.Unseal(0)
		if s.Seal(0); !grant2.Allowed || len(s.TakeGrants(0, 9)) != 0 || s.grantBytes.Load() != 0 {
			t.Error("what it holds counted when it was open")
		}
		if got := used(s, take.Key, take.Limit); got != 4 {
			t.Errorf("%d used, want 4", got)
		}
	})
}

// Refunds give back at most the tokens granted here, in any combination.
func TestProvisionalRefunds(t *testing.T) {
	for _, l := range everyLimit(10) {
		synctest.Test(t, func(t *testing.T) {
			owner, standby := newPair(t)
			k := key("k", 0)
			ask(owner, k, l, 6)
			drain(t, owner, standby, 0, ToStandby)
			provisionally(standby, Take{Key: k, Limit: l, Cost: 3})
			refund := Take{Key: k, Limit: l, Cost: -2}
			if g := provisionally(standby, refund, refund); !g.Allowed || used(standby, k, l) != 6 {
				t.Errorf("%v: %d used, want 6", l.Algorithm, used(standby, k, l))
			}
			owner.AddGrants(standby.TakeGrants(0, 9))
			if got := used(owner, k, l); got != 6 {
				t.Errorf("%v: the owner has %d, want 6", l.Algorithm, got)
			}
		})
	}
}

// A state that the owner has sent since is not undone with an earlier take, nor is a shadow's denial
// recorded.
func TestProvisionalReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, standby := newPair(t)
		take := takeOf("a", tokenBucketPerHour(10), 2)
		take.Tentative = true
		g := provisionally(standby, take)
		ask(owner, take.Key, take.Limit, 4)
		drain(t, owner, standby, 0, ToStandby)
		if standby.Return(g.Takes); used(standby, take.Key, take.Limit) != 4 || used(owner, take.Key, take.Limit) != 4 {
			t.Errorf("%d used, want 4", used(standby, take.Key, take.Limit))
		}
		standby.TakeGrants(0, 9)
		shadow := takeOf("a", tokenBucketPerHour(10), 7)
		shadow.Shadow = true
		if g := provisionally(standby, shadow); !g.Allowed || g.Takes[0].Decision.Allowed || len(standby.TakeGrants(0, 9)) != 0 {
			t.Errorf("%+v", g)
		}
	})
}

// TestReturnOfAGrantUnderWay gives back a take whose grant was sent to the owner. What the owner sends before it has the
// grant is merged with what is left of it.
func TestReturnOfAGrantUnderWay(t *testing.T) {
	for _, limit := range []algorithms.Limit{perHour(10), logPerHour(10)} {
		synctest.Test(t, func(t *testing.T) {
			owner, standby := newPair(t)
			kept, returned := provisionally(standby, takeOf("a", limit, 1)), provisionally(standby, takeOf("a", limit, 3))
			standby.TakeGrants(0, 9)
			if standby.Return(returned.Takes); returned.Takes[0].Source != Redirected {
				t.Errorf("%v: %+v", limit.Algorithm, returned.Takes[0])
			}
			ask(owner, kept.Takes[0].Key, limit, 4)
			drain(t, owner, standby, 0, ToStandby)
			if got := used(standby, kept.Takes[0].Key, limit); got != 1+4 {
				t.Errorf("%v: %d used, want 5", limit.Algorithm, got)
			}
		})
	}
}

// Beyond the bound, grants are in the copy only.
func TestGrantsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
		s.Seal(0)
		provisionally(s, takeOf("before", perHour(10), 1), takeOf("long", logPerHour(10), 1))
		kept := s.grantBytes.Load()
		s.grantBytes.Add(maxGrantBytes)
		for _, take := range []Take{takeOf("before", perHour(10), 1), takeOf("after", perHour(10), 1), takeOf("long", logPerHour(10), 1)} {
			if g := provisionally(s, take); !g.Allowed || used(s, take.Key, take.Limit) == 0 {
				t.Errorf("%+v", g)
			}
		}
		if s.grantBytes.Load() != kept+maxGrantBytes || testutil.ToFloat64(s.metrics.dropped) != 3 {
			t.Errorf("%d bytes more, %v said", s.grantBytes.Load()-kept-maxGrantBytes, testutil.ToFloat64(s.metrics.dropped))
		}
		s.grantBytes.Add(-maxGrantBytes)
		if grants := s.TakeGrants(0, 1); len(grants) != 1 || len(s.TakeGrants(0, 9)) != 1 || s.grantBytes.Load() != 0 {
			t.Errorf("%+v", grants)
		}
	})
}

// Grants that do not fit are counted as takes that do not fit are.
func TestGrantsOfAFullOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1), MaxLongBytes: 1})
		for i := range smallest {
			ask(owner, key("full", i), perHour(10), 10)
		}
		ask(owner, key("long", 0), logPerHour(10), 10)
		var standby = newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
		standby.Seal(0)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 200 {
			provisionally(standby, Take{Key: key("new", i), Limit: perHour(1 << 20), Cost: 1 + r.Int64N(10)}, Take{Key: key("newlong", i), Limit: logPerHour(10), Cost: 1})
		}
		if moved := owner.AddGrants(standby.TakeGrants(0, 1000)); len(moved) != 0 || owner.partitions[0].table.n > pageSlots || len(owner.partitions[0].long) != 1 {
			t.Errorf("%d moved, %d counters", len(moved), owner.Len())
		}
		for i := range 200 {
			if used(owner, key("new", i), perHour(1<<20)) == 0 {
				t.Fatalf("%d counts nothing", i)
			}
		}
		for i := range smallest {
			if used(owner, key("full", i), perHour(10)) != 10 {
				t.Errorf("%d was evicted", i)
			}
		}
		if d := consistent(owner); d != "" {
			t.Error(d)
		}
	})
}
