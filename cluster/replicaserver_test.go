package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
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
	"github.com/weirlimit/weir/cluster/replica"
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
}

// replicaNodes starts nodes that reach each other, in a bubble.
func replicaNodes(t *testing.T, ids ...string) map[string]*replicaNode {
	t.Helper()
	nodes := make(map[string]*replicaNode)
	for _, id := range ids {
		self := view.Life{ID: id, Incarnation: 1}
		peers := &replicaClient{
			partitions: replicaRing.Partitions, reaches: func(view.Life) bool { return true }, reachesID: func(string) bool { return true }, hasEnded: func(view.Life) bool { return false }, heard: func(context.Context, view.Life, uint64) {},
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
			Reports: func() view.Reports { return nil }, IsGone: func(view.Life, uint64) bool { return false }, Attest: func() {}, Observer: unobserved{},
			Logger: slog.New(slog.DiscardHandler),
		})
		nodes[id] = &replicaNode{node, serveReplicas(t, node)}
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
func serveReplicas(t *testing.T, node *ownership.Node) peerv1.ReplicasClient {
	t.Helper()
	l := inmemory.NewListener()
	server := grpc.NewServer()
	peerv1.RegisterReplicasServer(server, &replicaServer{node: node, admit: func(context.Context, *peerv1.Caller) error { return nil }, greet: func(string) {}})
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

// What no node sends is refused, with the name of the field.
func TestReplicaMessagesRefused(t *testing.T) {
	for _, tc := range []struct {
		change func(w *peerv1.Changes)
		want   string
	}{
		{func(w *peerv1.Changes) { w.Partition = 64 }, "partition: 64 is not below 64"},
		{func(w *peerv1.Changes) { w.Session = 0 }, "session: 0"},
		{func(w *peerv1.Changes) { w.Index = 0 }, "index: 0"},
		{func(w *peerv1.Changes) { w.Acknowledged = append(w.Acknowledged, w.Acknowledged[0]) }, `acknowledged: "a" after "b"`},
		{func(w *peerv1.Changes) { w.Acknowledged = make([]*peerv1.DeltaMark, maxDeltaMarks+1) }, "acknowledged: 1025 nodes"},
	} {
		w := wireChanges(someChanges())
		tc.change(w)
		if _, err := changesOf(w, 64); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("the error is %v, want %s", err, tc.want)
		}
	}
	if _, err := receiptsOf([]peerv1.FeedReceipt{peerv1.FeedReceipt_FEED_RECEIPT_TAKEN, 9}); err == nil || !strings.Contains(err.Error(), "receipts: 9") {
		t.Errorf("a receipt of 9: %v", err)
	}
	for name, posts := range map[string][]*peerv1.PartitionDeltas{
		"partition: 64 is not below 64":      {{Partition: 64}},
		"grants of delta 3 of partition 7":   {{Partition: 7, Deltas: []*peerv1.DeltaBatch{{Number: 3, Grants: []byte{1}}}}},
		"posts: 65, there are 64 partitions": make([]*peerv1.PartitionDeltas, 65),
	} {
		if _, err := postsOf(posts, 64); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error is %v, want %s", err, name)
		}
	}
	if _, err := requestsOf([]*peerv1.CopyRequest{{Partition: 64}}, 64); err == nil || !strings.Contains(err.Error(), "partition: 64 is not below 64") {
		t.Errorf("a request for partition 64: %v", err)
	}
}

func someChanges() *ownership.Changes {
	return &ownership.Changes{
		Partition: 3, Session: 4, Index: 5, Version: replica.Version{Term: 6, Sequence: 7}, Records: []byte("records"), Complete: true, Number: 8, FinalFor: 9,
		Acknowledged: replica.Acknowledged{{Life: view.Life{ID: "a", Incarnation: 1}, Last: 2}, {Life: view.Life{ID: "b", Incarnation: 3}, Last: 4}},
	}
}

// What is sent arrives.
func TestReplicaMessages(t *testing.T) {
	sent := someChanges()
	got, err := changesOf(wireChanges(sent), 64)
	if err != nil || got.Partition != sent.Partition || got.Session != sent.Session || got.Index != sent.Index || got.Version != sent.Version ||
		!bytes.Equal(got.Records, sent.Records) || got.Complete != sent.Complete || got.Number != sent.Number || got.FinalFor != sent.FinalFor ||
		!slices.Equal(got.Acknowledged, sent.Acknowledged) {
		t.Errorf("%+v became %+v, %v", sent, got, err)
	}
	all := []ownership.Receipt{ownership.Taken, ownership.Again, ownership.Later, ownership.Useless, ownership.Fit}
	if got, err := receiptsOf(wireReceipts(all)); err != nil || !slices.Equal(got, all) {
		t.Errorf("%v became %v, %v", all, got, err)
	}
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
