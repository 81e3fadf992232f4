package sizing

import (
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// What was measured on one machine. docs/performance/results.json has the results; a test compares.
const (
	// counterBytes is the memory of a counter: part engine, with 1 to 100 million keys.
	counterBytes = 44.3
	// snapshotBytes is the size of a counter on disk: docs/performance.md, Snapshots.
	snapshotBytes = 32.1
	// startSeconds and stopSeconds are for reading and writing 10 million counters: docs/performance.md, Snapshots.
	startSeconds, stopSeconds = 2.1, 0.7
	perSnapshotTime           = 10e6
)

// cost is processor time of all nodes per check, in microseconds.
type cost struct{ unary, batched float64 }

// measured is part nodes: 64 callers are shared by so many nodes, of which any is asked. Batches are of 100.
var measured = []struct {
	nodes int
	cost  cost
}{
	{1, cost{14.50, 0.80}}, {2, cost{28.14, 1.98}}, {3, cost{33.51, 2.09}},
	{4, cost{43.77, 2.46}}, {6, cost{76.53, 4.07}}, {8, cost{109.10, 4.79}},
}

// Part wire: one node, and three of which each is asked by 64 callers. More checks travel together than in measured.
var (
	oneBusy   = cost{17.84, 0.99}
	threeBusy = cost{34.14, 2.20}
)

// What other parts of Weir say.
var (
	// uneven is how much more than the mean a node may own.
	uneven = ring.DefaultParams.Load
	// partitions is how many the counters are divided into, and mostNodes how many members that permits.
	partitions = ring.DefaultParams.Partitions
	mostNodes  = ring.DefaultParams.MaxMembers()
)

const (
	mib = 1 << 20
	gib = 1 << 30
	// longBytes are for counters of logs and buckets, in addition to --counter-memory.
	longBytes = shard.DefaultMaxLongBytes
	// besideBytes are for connections, garbage and moves of partitions: deploy/helm/weir/values.yaml.
	besideBytes = 750 * mib
	// leastCounterMemory is the default of --counter-memory.
	leastCounterMemory = gib
)

// What is chosen.
const (
	// busyAfterLoss is how much of their processors nodes may use once one of them is gone. A node that is late has its standby decide.
	busyAfterLoss = 0.8
	// fullest is the share of --counter-memory above which the alert WeirMemoryNearlyFull fires.
	fullest = 0.9
	// leastNodes keep a standby for each counter after the loss of one.
	leastNodes = 3
)

// Sizes in etcd: cluster/etcd/limits.go bounds rules, tokens and what each node says of itself.
const (
	etcdRules  = mib
	etcdTokens = mib
	etcdNode   = 8 << 10
	// A view has two indices of two bytes and two varints of at most ten bytes for each partition, in base64, and its members several times.
	etcdViewPartition = (2 + 2 + 10 + 10) * 4 / 3
	etcdViewMember    = 3 * 512
)

// of returns the cost with so many nodes, if few checks travel together. Above the most that were measured nothing travels together
// any more, so a check that is forwarded costs the same, and the share of those grows towards one.
func of(nodes int) cost {
	last := measured[len(measured)-1]
	if nodes >= last.nodes {
		return forwarding(measured[0].cost, last.cost, last.nodes, nodes)
	}
	for i := 1; ; i++ {
		above := measured[i]
		if nodes > above.nodes {
			continue
		}
		below := measured[i-1]
		part := float64(nodes-below.nodes) / float64(above.nodes-below.nodes)
		return cost{
			below.cost.unary + part*(above.cost.unary-below.cost.unary),
			below.cost.batched + part*(above.cost.batched-below.cost.batched),
		}
	}
}

// ofBusy returns the cost with so many nodes, if as many checks travel together as with 64 callers per node.
func ofBusy(nodes int) cost { return forwarding(oneBusy, threeBusy, leastNodes, nodes) }

// forwarding returns the cost with n nodes, from those of one node and of some: of n nodes, all but one of n checks are forwarded.
func forwarding(one, some cost, nodes, n int) cost {
	share := func(n int) float64 { return float64(n-1) / float64(n) }
	times := share(n) / share(nodes)
	return cost{one.unary + times*(some.unary-one.unary), one.batched + times*(some.batched-one.batched)}
}

// mean is the cost of a check if that share of all comes in batches.
func (c cost) mean(batched float64) float64 { return batched*c.batched + (1-batched)*c.unary }
