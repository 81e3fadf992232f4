package node

import (
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlimit/weir/cluster"
)

// A node that is drained while it starts does not say that it serves until that is cancelled.
func TestDrainedWhileStarting(t *testing.T) {
	t.Parallel()
	n, err := build(t.Context(), Network{}, testOptions(t), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	says := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		resp, err := n.health.Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil || resp.GetStatus() != want || n.serving.Load() != (want == healthpb.HealthCheckResponse_SERVING) {
			t.Errorf("%v, %v, want %v", resp, err, want)
		}
	}
	setView(t, n, cluster.Member{ID: "a", Address: n.opts.GRPC, Incarnation: n.self.Incarnation})
	n.membership.Update(cluster.RegistryContent{Nodes: []cluster.Node{n.Self(), {ID: "b", State: cluster.Ready}}})
	if err := n.Drain(false); err != nil {
		t.Fatal(err)
	}
	n.beginServing()
	says(healthpb.HealthCheckResponse_NOT_SERVING)
	if err := n.Drain(true); err != nil {
		t.Fatal(err)
	}
	says(healthpb.HealthCheckResponse_SERVING)
	n.setServing(false)
	n.beginServing()
	says(healthpb.HealthCheckResponse_SERVING)
}
