package ownership

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// direct carries messages to one other node, by calls.
type direct struct {
	Peers // the rest, which is not called
	to    *Node
	from  view.Life
}

func (d direct) Feed(_ context.Context, _ view.Life, changes []*Changes, _ <-chan struct{}) ([]Receipt, error) {
	return d.to.Take(d.from, changes), nil
}

// BenchmarkFeed has a standby fed 340 partitions, with one changed counter in each: what a node of three does every 100 ms for one of the
// others, without the connection. One op is one partition.
func BenchmarkFeed(b *testing.B) {
	const partitions = 340
	owner, standby := view.Life{ID: "a", Incarnation: 1}, view.Life{ID: "b", Incarnation: 1}
	v := &view.View{Number: 1, Members: []view.Member{{Life: owner}, {Life: standby, State: view.Gone}}} // so the owner needs no witness
	for range partitions {
		v.Partitions = append(v.Partitions, view.Partition{Owner: owner, Term: 1, Standby: standby})
	}
	node := func(l view.Life, peers Peers) *Node {
		counters, err := shard.New(shard.Config{Partitions: partitions, MaxBytes: 8 << 20, Metrics: prometheus.NewRegistry()})
		if err != nil {
			b.Fatal(err)
		}
		return NewNode(Config{
			Self: l, Shard: counters, Partitions: partitions, Peers: peers, Observer: unobserved{}, Logger: slog.New(slog.DiscardHandler),
			Plan: func(v *view.View) (plan view.Plan) {
				for range v.Partitions {
					plan = append(plan, view.Place{Owner: owner.ID, Standby: standby.ID})
				}
				return plan
			},
		})
	}
	to := node(standby, nil)
	from := node(owner, direct{to: to, from: owner})
	for _, n := range []*Node{to, from} {
		n.Adopt(v)
	}
	var keys []ring.Key // one of each partition
	for p := 0; len(keys) < partitions; p++ {
		if k := worldKey(p); k.Partition(partitions) == uint32(len(keys)) {
			keys = append(keys, k)
		}
	}
	c := &sender{peer: from.peer(standby), node: from}
	limit := worldLimit
	limit.Limit = 1 << 30
	round := func() {
		for _, k := range keys {
			g := []shard.Group{{Takes: []shard.Take{{Key: k, Limit: limit, Cost: 1}}}}
			if from.Shard.Decide(g); g[0].Takes[0].Source != shard.Owner {
				b.Fatalf("decided by %v", g[0].Takes[0].Source)
			}
		}
		for more := true; more || c.copies.more; {
			var changes []*Changes
			if changes, more = c.pack(false); !c.send(b.Context(), changes) {
				b.Fatal("not sent")
			}
		}
	}
	round()
	if x := &to.parts[7].replica; x.State != replica.Following {
		b.Fatalf("the standby's copy is %v", x.State)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range (b.N + partitions - 1) / partitions {
		round()
	}
}
