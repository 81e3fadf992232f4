package node

import (
	"runtime/metrics"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster"
)

// loadAge is how long a load is reported before it is read again: all members ask for it twice a second.
const loadAge = time.Second

// loads read what this node reports of its load. It is safe for concurrent use.
type loads struct {
	node *node

	mu   sync.Mutex
	last cluster.Load // guarded by mu
	at   time.Time    // guarded by mu; when last was read
}

// load returns what the node has answered, and what it holds.
func (l *loads) load() cluster.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at) < loadAge || l.node.limiter == nil {
		return l.last
	}
	n := l.node
	traffic := n.limiter.Traffic()
	l.at = time.Now()
	l.last = cluster.Load{
		At: l.at, Allowed: traffic.Allowed, Denied: traffic.Denied, Undecided: traffic.Undecided, Bounds: traffic.Bounds, Calls: traffic.Calls,
		Counters: uint64(n.shard.Len()), CounterBytes: uint64(n.shard.Bytes()), CounterLimit: uint64(n.opts.CounterMemory),
		Memory: memory(), Problems: n.Problems(),
	}
	return l.last
}

// memory returns how many bytes this process has from the operating system.
func memory() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}
