package node

import (
	"fmt"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/rules"
)

var _ api.Status = (*node)(nil)

// announce changes what the node says of itself.
func (n *node) announce(change func(self *cluster.Node)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.self)
	if n.self.State != cluster.Joining && n.self.Incarnation > 0 { // the registry is not told before that
		n.registry.Announce(n.self)
	}
}

// setServing sets the state of the standard health service.
func (n *node) setServing(serving bool) {
	st := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		st = healthpb.HealthCheckResponse_SERVING
	}
	n.health.SetServingStatus("", st)
	for service := range n.grpc.GetServiceInfo() {
		n.health.SetServingStatus(service, st)
	}
	n.serving.Store(serving)
	n.tellEnvoy()
}

// beginServing sets the health service to serving, unless the node was drained while it started.
func (n *node) beginServing() {
	n.draining.Lock()
	defer n.draining.Unlock()
	if !n.drained.Load() {
		n.setServing(true)
	}
}

// tellEnvoy sets the health of the service by the name that envoyproxy/ratelimit has.
func (n *node) tellEnvoy() {
	st := healthpb.HealthCheckResponse_NOT_SERVING
	if n.serving.Load() && (!n.opts.HealthNeedsRules || n.rules.Set().Len() > 0) {
		st = healthpb.HealthCheckResponse_SERVING
	}
	n.health.SetServingStatus("ratelimit", st)
}

// Self implements api.Status.
func (n *node) Self() cluster.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.self
}

// answer asks every part of the node for its state, for which each needs its lock, and has one counter looked at as a check
// would. It changes nothing, and waits for no file, no etcd and no other node.
func (n *node) answer() {
	n.shard.Probe()
	algorithm, _ := algorithms.Parse(n.opts.LyftAlgorithm)
	n.router.Probe(algorithms.Limit{Algorithm: algorithm, Limit: 1, Window: int64(time.Minute)})
	_ = n.Self()
	_ = n.Nodes()
	_ = n.owners.HandoverStatus()
	_ = n.Problems()
}

// Cluster implements api.Status.
func (n *node) Cluster() string { return fmt.Sprintf("%016x", n.greeter.Self().Cluster) }

// Ready implements api.Status.
func (n *node) Ready() bool {
	return n.canDecide() && n.hasRules()
}

// canDecide reports whether the node does its part for other nodes, for which it needs no rules of its own.
func (n *node) canDecide() bool {
	return (n.isMember() || n.offline.Load()) && !n.leaving.Load() && !n.drained.Load()
}

// readiness is what the node is doing, which it tells other members for their callers: Ready exactly if Ready is true. What it
// does for other nodes does not depend on it.
func (n *node) readiness() cluster.State {
	switch {
	case n.leaving.Load() || n.drained.Load():
		return cluster.Leaving
	case n.Ready():
		return cluster.Ready
	}
	return cluster.Joining
}

// HandoverStatus implements api.Status.
func (n *node) HandoverStatus(id string) cluster.HandoverStatus {
	return n.owners.HandoverStatusOf(id)
}

func (n *node) isMember() bool {
	v := n.router.View()
	if v == nil {
		return false
	}
	i, found := v.Index(n.opts.ID)
	return found && v.Members[i].Incarnation == n.Self().Incarnation
}

// View implements api.Status.
func (n *node) View() *cluster.View { return n.router.View() }

// viewNumber returns the number of the view that the node routes by, 0 before the first.
func (n *node) viewNumber() uint64 {
	if v := n.View(); v != nil {
		return v.Number
	}
	return 0
}

// Nodes implements api.Status.
func (n *node) Nodes() []cluster.Node { return n.membership.Latest().Nodes }

// Reaches implements api.Status.
func (n *node) Reaches(id string) bool { return n.router.Reaches(id) }

func (n *node) reachesAll() bool {
	_, reachable := n.router.Members()
	for _, r := range reachable {
		if !r {
			return false
		}
	}
	return true
}

// Unreached implements api.Status.
func (n *node) Unreached() []cluster.Unreached { return n.owners.Unreached() }

// EtcdReachable implements api.Status.
func (n *node) EtcdReachable() bool { return n.registry.Reachable() }

// Rules implements api.Status.
func (n *node) Rules() *rules.Set { return n.rules.Set() }

// Counters implements api.Status.
func (n *node) Counters() int { return n.shard.Len() }
