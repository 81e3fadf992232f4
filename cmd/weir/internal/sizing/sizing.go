// Package sizing provides the calculator of "weir size", which says what a cluster needs for its load.
//
// For computes a Plan from a Load and from costs that were measured on one machine. The costs are
// named constants, each with its source.
package sizing

import (
	"fmt"
	"math"
)

// Load is what a cluster is for.
type Load struct {
	// Checks is how many come in a second, 1 to 1e9.
	Checks float64
	// Keys is how many counters are in use at once, 1 to 1e12.
	Keys float64
	// Batched is the share of the checks that come in batches of about 100, 0 to 1.
	Batched float64
	// Cores is how many processors a node has, 1 to 1024.
	Cores int
	// Nodes is how many nodes there are. 0 means as few as can do it, and three at least.
	Nodes int
}

// MostNodes is the most that Load.Nodes may be.
func MostNodes() int { return mostNodes }

// Plan is what a cluster needs. Bytes are those of one node unless a field says otherwise.
type Plan struct {
	// Nodes is the number of nodes, and Cores the processors of each.
	Nodes int `json:"nodes"`
	Cores int `json:"cores"`
	// CoresUsed are those that the checks use, of all nodes together, if few of them travel together between nodes. CoresUsedBusy
	// are those if many do.
	CoresUsed     float64 `json:"cores_used"`
	CoresUsedBusy float64 `json:"cores_used_busy"`
	// Busy is the share of all processors that is CoresUsed; BusyAfterLoss once a node is gone. 0 if there is no other node.
	Busy          float64 `json:"busy"`
	BusyAfterLoss float64 `json:"busy_after_loss"`
	// Counters and Copies are what a node has as owner and as standby, when a node is gone and shares are as uneven as they may be.
	Counters int64 `json:"counters"`
	Copies   int64 `json:"copies"`
	// CounterMemory is the least --counter-memory for these. Memory is for the whole process.
	CounterMemory int64 `json:"counter_memory_bytes"`
	Memory        int64 `json:"memory_bytes"`
	// Snapshot is the size of the file with these counters and copies, and Disk has room for an old and a new one.
	Snapshot int64 `json:"snapshot_bytes"`
	Disk     int64 `json:"disk_bytes"`
	// StartSeconds and StopSeconds are how much longer a start and a stop take with these counters.
	StartSeconds float64 `json:"start_seconds"`
	StopSeconds  float64 `json:"stop_seconds"`
	// Etcd is the most that etcd stores for the cluster at a time, without what it keeps of earlier revisions.
	Etcd int64 `json:"etcd_bytes"`
	// Enough reports whether the other nodes have processors enough when one is gone.
	Enough bool `json:"enough"`
}

// Problem says that a field of a Load has a value that no cluster can have.
type Problem struct {
	Field  string // in lower case
	Reason string // with the value
}

func (p *Problem) Error() string { return p.Field + ": " + p.Reason }

// For returns what a cluster needs. The error is a *Problem.
func For(l Load) (Plan, error) {
	if err := l.validate(); err != nil {
		return Plan{}, err
	}
	if l.Nodes > 0 {
		return l.with(l.Nodes), nil
	}
	for n := leastNodes; n <= mostNodes; n++ {
		if p := l.with(n); p.Enough {
			return p, nil
		}
	}
	return Plan{}, &Problem{"checks", fmt.Sprintf("%g a second are too many for %d nodes of %d processors: take more processors or batches", l.Checks, mostNodes, l.Cores)}
}

func (l Load) validate() error {
	for _, q := range []struct {
		field              string
		value, least, most float64
	}{
		{"checks", l.Checks, 1, 1e9}, {"keys", l.Keys, 1, 1e12}, {"batch", l.Batched, 0, 1},
		{"cores", float64(l.Cores), 1, 1024}, {"nodes", float64(l.Nodes), 0, float64(mostNodes)},
	} {
		if !(q.value >= q.least && q.value <= q.most) { // written so that NaN fails
			return &Problem{q.field, fmt.Sprintf("%g is not between %g and %g", q.value, q.least, q.most)}
		}
	}
	return nil
}

// with returns what the load needs if it is spread over a number of nodes.
func (l Load) with(nodes int) Plan {
	p := Plan{Nodes: nodes, Cores: l.Cores}
	const perSecond = 1e6 // microseconds
	p.CoresUsed = l.Checks * of(nodes).mean(l.Batched) / perSecond
	p.CoresUsedBusy = math.Min(p.CoresUsed, l.Checks*ofBusy(nodes).mean(l.Batched)/perSecond)
	p.Busy = p.CoresUsed / float64(nodes*l.Cores)
	p.Enough = p.Busy <= busyAfterLoss
	left := nodes - 1
	if left > 0 {
		p.BusyAfterLoss = l.Checks * of(left).mean(l.Batched) / perSecond / float64(left*l.Cores)
		p.Enough = p.BusyAfterLoss <= busyAfterLoss
	}
	p.store(l.Keys, max(left, 1))
	p.Etcd = int64(etcdRules + etcdTokens + partitions*etcdViewPartition + nodes*(etcdNode+etcdViewMember))
	return p
}

// store fills in what each node keeps of the counters of all keys, given the number of nodes.
func (p *Plan) store(keys float64, nodes int) {
	share := math.Min(1, uneven/float64(nodes))
	p.Counters = int64(math.Ceil(keys * share))
	if nodes > 1 {
		p.Copies = p.Counters
	}
	all := float64(p.Counters + p.Copies)
	p.CounterMemory = roundUp(max(all*counterBytes/fullest, leastCounterMemory), 64*mib)
	p.Memory = roundUp(float64(p.CounterMemory+longBytes+besideBytes), 64*mib)
	p.Snapshot = int64(math.Round(all * snapshotBytes))
	p.Disk = roundUp(2*float64(p.Snapshot), 64*mib)
	p.StartSeconds = startSeconds * all / perSnapshotTime
	p.StopSeconds = stopSeconds * all / perSnapshotTime
}

func roundUp(value float64, unit int64) int64 { return int64(math.Ceil(value/float64(unit))) * unit }
