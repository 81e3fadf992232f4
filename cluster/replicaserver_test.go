package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/internal/inmemory"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

var replicaRing = ring.Params{Partitions: 64, ReplicationFactor: 40, Load: 1.25}

// replicaNode is a node that speaks to others over gRPC.
type replicaNode struct {
	*ownership.Node
	client peerv1.ReplicasClient
	peers  *replicaClient
}

// replicaNodes starts nodes that reach each other, in a bubble.
func replicaNodes(t *testing.T, ids ...string) map[string]*replicaNode {
	t.Helper()
	nodes := make(map[string]*replicaNode)
	for _, id := range ids {
		self := view.Life{ID: id, Incarnation: 1}
		var isSilent atomic.Bool
		peers := &replicaClient{
			partitions: replicaRing.Partitions, reaches: func(view.Life) bool { return true }, reachesID: func(string) bool { return true }, hasEnded: func(view.Life) bool { return false },
			relays: func(view.Life) []view.Life { return nil }, isSilent: func(view.Life) *atomic.Bool { return &isSilent }, heard: func(context.Context, view.Life, uint64) {},
			member: func(l view.Life) (peerv1.ReplicasClient, *peerv1.Caller, error) {
				return nodes[l.ID].client, &peerv1.Caller{Id: id, Incarnation: 1}, nil
			},
		}
		counters, err := shard.New(shard.Config{Partitions: uint32(replicaRing.Partitions), MaxBytes: 8 << 20, Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		node := ownership.NewNode(ownership.Config{
			Self: self, Shard: counters, Partitions: replicaRing.Partitions, Peers: peers, Plan: replicaPlan(t),
			Reports: func() view.Reports { return nil }, IsGone: func(view.Life, uint64) bool { return false },
			HasSaidFarewell: func(view.Life) bool { return false }, StandIns: func() []view.Life { return nil }, Attest: func() {}, Observer: unobserved{},
			Logger: slog.New(slog.DiscardHandler),
		})
		nodes[id] = &replicaNode{node, serveReplicas(t, node, peers), peers}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	for _, x := range nodes {
		go func() {
			x.Run(ctx)
			done <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		cancel()
		for range nodes {
			<-done
		}
	})
	return nodes
}

func replicaPlan(t *testing.T) func(v *view.View) view.Plan {
	return func(v *view.View) view.Plan {
		plan, err := view.PlanOf(replicaRing, v)
		if err != nil {
			t.Error(err)
		}
		return plan
	}
}

// serveReplicas has a node answer calls, and returns a client of it.
func serveReplicas(t *testing.T, node *ownership.Node, peers *replicaClient) peerv1.ReplicasClient {
	t.Helper()
	l := inmemory.NewListener()
	server := grpc.NewServer()
	peerv1.RegisterReplicasServer(server, &replicaServer{
		node: node, life: func() view.Life { return node.Self }, peers: peers, admit: func(context.Context, *peerv1.Caller) error { return nil }, greet: func(string) {},
	})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///"+node.Self.ID, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return peerv1.NewReplicasClient(conn)
}

// adoptNext has all nodes adopt the views that follow v, until there are none, with etcd and all others as their witnesses.
func adoptNext(t *testing.T, v *view.View, nodes map[string]*replicaNode, members ...view.Member) *view.View {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 200 {
		var reports view.Reports
		for _, id := range []string{"a", "b", "c"} {
			x := nodes[id]
			x.Adopt(v)
			x.Granted()
			x.Read(time.Now(), v.Number)
			x.Renewed(time.Now())
			reports = append(reports, x.Report())
		}
		plan := replicaPlan(t)(v)
		if next, _ := view.Next(v, view.Seen{Nodes: members}, reports, plan); next != nil {
			v = next
		} else if isWherePlanned(v, plan) {
			return v
		}
		<-tick.C
	}
	t.Fatal("after 10 s the partitions are not where the plan wants them")
	return nil
}

func isWherePlanned(v *view.View, plan view.Plan) bool {
	for p := range plan {
		if !v.Follows(p, plan) {
			return false
		}
	}
	return true
}

// Counters move over gRPC as the partitions move: a key that is used up stays used up, and so is a key that its standby has used up meanwhile.
func TestCopiesOverGRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := replicaNodes(t, "a", "b", "c")
		var members []view.Member
		for _, id := range []string{"a", "b", "c"} {
			members = append(members, view.Member{Life: view.Life{ID: id, Incarnation: 1}, Address: id + ":1"})
		}
		first := &view.View{Members: members[:1]}
		v := adoptNext(t, view.First(members[:1], replicaPlan(t)(first)), nodes, members[0])
		limit := perHour(5)
		decide := func(id string, n int, provisional bool) (allowed int, source shard.Source) {
			g := []shard.Group{{Provisional: provisional, Takes: []shard.Take{{Key: replicaKey(n), Limit: limit, Cost: 1}}}}
			for range 6 {
				nodes[id].Shard.Decide(g)
				if g[0].Allowed {
					allowed++
				}
			}
			return allowed, g[0].Takes[0].Source
		}
		for n := range 100 {
			if allowed, source := decide("a", n, false); allowed != 5 || source != shard.Owner {
				t.Fatalf("key %d: %d allowed by %v", n, allowed, source)
			}
		}
		v = adoptNext(t, v, nodes, members...)
		pass(100 * time.Millisecond) // the standbys ask the others first
		for n := range 200 {
			part := v.Partitions[replicaKey(n).Partition(uint32(replicaRing.Partitions))]
			if n >= 100 {
				if allowed, source := decide(part.Standby.ID, n, true); allowed != 5 || source != shard.Provisional {
					t.Fatalf("key %d: %d allowed by %v of the standby", n, allowed, source)
				}
			}
		}
		time.Sleep(time.Second)
		for n := range 200 {
			part := v.Partitions[replicaKey(n).Partition(uint32(replicaRing.Partitions))]
			if allowed, source := decide(part.Owner.ID, n, false); allowed != 0 || source != shard.Owner {
				t.Errorf("key %d: %d more allowed by %v of %s", n, allowed, source, part.Owner.ID)
			}
		}
	})
}

// replicaKey returns the n-th key.
func replicaKey(n int) ring.Key {
	return ring.NewHasher([ring.SecretSize]byte{}).Key(fmt.Append(nil, n))
}

// A call about partitions that are none is refused.
func TestReplicaCallsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := replicaNodes(t, "a")["a"].client
		if _, err := client.Feed(t.Context(), &peerv1.FeedRequest{Changes: make([]*peerv1.Changes, 65)}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("65 changes: %v", err)
		}
		if _, err := client.ListVersions(t.Context(), &peerv1.ListVersionsRequest{Partitions: make([]uint32, 65)}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("65 versions: %v", err)
		}
		if resp, err := client.ListVersions(t.Context(), &peerv1.ListVersionsRequest{Partitions: []uint32{1, 64}}); err != nil || len(resp.GetVersions()) != 2 {
			t.Errorf("two versions: %v, %v", resp, err)
		}
	})
}

// unobserved is an Observer that waits for nothing.
type unobserved struct{}

func (unobserved) Opened(uint32)                          {}
func (unobserved) Moved(ownership.Move)                   {}
func (unobserved) Added(int)                              {}
func (unobserved) Followed(uint32, view.Life)             {}
func (unobserved) Begin(uint32) uint64                    { return 0 }
func (unobserved) Acknowledged(uint32, uint64, time.Time) {}
