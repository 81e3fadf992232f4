package node

import (
	"errors"
	"fmt"
	"strings"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

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

func (n *node) announceReady() {
	n.announce(func(self *cluster.Node) { self.State = cluster.Ready })
}

// setServing tells those who use the standard health service.
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

// beginServing has the health service say that the node serves, unless somebody has had it
// drained while it started.
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

// Ready implements api.Status.
func (n *node) Ready() bool {
	return (n.isMember() || n.away.Load()) && !n.leaving.Load() && !n.drained.Load()
}

// Standing implements api.Status.
func (n *node) Standing(id string) cluster.Standing { return n.custody.StandingOf(id) }

// Drain implements api.Status.
func (n *node) Drain(cancel bool) error {
	n.draining.Lock()
	defer n.draining.Unlock()
	if n.leaving.Load() {
		return errors.New("the node is about to stop")
	}
	if !cancel && !n.othersReady() {
		return errors.New("no other node is ready to take over what this one holds")
	}
	n.drained.Store(!cancel)
	n.setServing(cancel && n.isMember())
	state := cluster.Leaving
	if cancel {
		state = cluster.Ready
	}
	n.announce(func(self *cluster.Node) { self.State = state })
	n.log.Info("draining", "id", n.opts.ID, "cancelled", cancel)
	return nil
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

// EtcdReachable implements api.Status.
func (n *node) EtcdReachable() bool { return n.registry.Reachable() }

// Rules implements api.Status.
func (n *node) Rules() *rules.Set { return n.rules.Set() }

// Counters implements api.Status.
func (n *node) Counters() int { return n.shard.Len() }

// Problems implements api.Status.
func (n *node) Problems() []string {
	var problems []string
	if n.away.Load() {
		problems = append(problems, "this node has started by what it had kept of the cluster, without etcd, and is not registered there yet: it holds no counters but forwards, and rules are those of its last run")
	} else if !n.isMember() {
		problems = append(problems, "this node is not a member of the view, so it only forwards")
	}
	if left := n.membership.LeftOut(); left > 0 {
		problems = append(problems, fmt.Sprintf("the ring has no room for %d more nodes: they only forward", left))
	}
	if died := n.etcdDied.Load(); died != nil {
		problems = append(problems, fmt.Sprintf("the embedded etcd has died, so that nodes cannot join or leave, nor rules change, until this one is restarted; checks go on: %v", *died))
	} else if st := n.registry.Status(); !st.Reachable {
		problems = append(problems, "etcd does not answer: nodes cannot join or leave, and rules cannot change; checks go on")
	} else if st.Wiped {
		problems = append(problems, st.Alarm+"; checks go on, and weir view import gives it back what this node knows")
	} else if st.Alarm != "" {
		problems = append(problems, st.Alarm)
	}
	if err := n.state.Err(); err != nil {
		problems = append(problems, fmt.Sprintf("this node could not start while etcd is away, because its state cannot be kept: %v", err))
	}
	if err := n.rules.Err(); err != nil {
		problems = append(problems, fmt.Sprintf("the rules as they are now were refused, the last good ones are in force: %v", err))
	}
	if others := n.othersRules(); len(others) > 0 {
		problems = append(problems, fmt.Sprintf("other rules than this node's are in force on %s, because some nodes have files (--rules) of their own: what applies to a check depends on the node that is asked", strings.Join(others, ", ")))
	}
	members, reachable := n.router.Members()
	for i, m := range members {
		if !reachable[i] {
			problems = append(problems, fmt.Sprintf("node %s at %s does not answer: its keys are decided by the nodes that stand by for them, and by their rules' on_failure only where these do not answer", m.ID, m.Address))
		}
	}
	return problems
}

// othersRules returns the ids of the nodes that run other rules than this one, and
// will go on to: with the registry's rules on both, one of them is about to follow.
func (n *node) othersRules() (ids []string) {
	self := n.Self()
	for _, other := range n.Nodes() {
		if other.ID != self.ID && other.RuleRevision != self.RuleRevision && (other.OwnRules || self.OwnRules) {
			ids = append(ids, other.ID)
		}
	}
	return ids
}
