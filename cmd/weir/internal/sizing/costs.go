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

// measured is part nodes of the performance page: 64 callers ask any of the nodes. Batches have 100 checks.
var measured = []struct {
	nodes int
	cost  cost
}{
	{1, cost{14.64, 0.79}}, {2, cost{26.38, 2.15}}, {3, cost{37.29, 2.60}},
	{4, cost{49.32, 3.05}}, {6, cost{74.98, 3.99}}, {8, cost{101.3, 5.66}},
}

// perMessage is how many checks a message between nodes has with the most nodes in measured.
var perMessage = cost{1.241, 10.78}

// batchSize is how many checks a batch of measured has.
const batchSize = 100

// Part wire: one node, and three of which each is asked by 64 callers. More checks travel together than in measured.
var (
	oneBusy   = cost{14.72, 0.81}
	threeBusy = cost{26.75, 2.34}
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

// Sizes in etcd: cluster/etcd/bounds.go bounds rules, tokens and what each node says of itself.
const (
	etcdRules  = mib
	etcdTokens = mib
	etcdNode   = 8 << 10
	// A view has two indices of two bytes and two varints of at most ten bytes for each partition, in base64, and its members several times.
	etcdViewPartition = (2 + 2 + 10 + 10) * 4 / 3
	etcdViewMember    = 3 * 512
)

// of returns the cost with that many nodes, if few checks travel together. Up to the most that were measured it lies on straight
// lines between what was measured. Above that it is derived: see beyond.
func of(nodes int) cost {
	if last := measured[len(measured)-1]; nodes > last.nodes {
		return beyond(nodes)
	}
	for i, above := range measured {
		if nodes > above.nodes {
			continue
		}
		if nodes == above.nodes {
			return above.cost
		}
		below := measured[i-1]
		part := float64(nodes-below.nodes) / float64(above.nodes-below.nodes)
		return cost{
			below.cost.unary + part*(above.cost.unary-below.cost.unary),
			below.cost.batched + part*(above.cost.batched-below.cost.batched),
		}
	}
	panic("sizing: no cost") // measured ends with the most
}

// beyond returns the cost with more nodes than were measured. What a forwarded check adds is taken as the cost of its message, divided
// by the checks in that message. A message costs what it does with the most nodes that were measured. A check of its own has one
// message, and a batch has one for each node, with an equal share of its checks.
func beyond(nodes int) cost {
	one, last := measured[0].cost, measured[len(measured)-1]
	before := forwarded(last.nodes)
	unary := (last.cost.unary - one.unary) / before * perMessage.unary
	batched := (last.cost.batched - one.batched) / before * perMessage.batched
	return cost{
		one.unary + forwarded(nodes)*unary,
		one.batched + forwarded(nodes)*batched/max(1, batchSize/float64(nodes)),
	}
}

// ofBusy returns the cost with that many nodes, if as many checks travel together as between three nodes with 64 callers each. A
// forwarded check adds what it does there, with any number of nodes.
func ofBusy(nodes int) cost {
	times := forwarded(nodes) / forwarded(leastNodes)
	return cost{oneBusy.unary + times*(threeBusy.unary-oneBusy.unary), oneBusy.batched + times*(threeBusy.batched-oneBusy.batched)}
}

// forwarded is the share of the checks that another node owns than the one that is asked.
func forwarded(nodes int) float64 { return float64(nodes-1) / float64(nodes) }

// mean is the cost of a check if that share of all comes in batches.
func (c cost) mean(batched float64) float64 { return batched*c.batched + (1-batched)*c.unary }
