package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// A caller with a newer view, which this node does not reach, hears from it while it waits.
func TestHeartbeatOfAnUnreachableCaller(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b")
		c.settled()
		goOn := c.alive["b"].halt()
		began := time.Now()
		resp, err := c.alive["a"].owners.server().Heartbeat(t.Context(), &peerv1.HeartbeatRequest{Caller: &peerv1.Caller{Version: connVersion, Cluster: 1, Id: "b", Address: "b:1", View: 99, ToId: "a"}})
		if took := time.Since(began); err != nil || resp.GetView() == 0 || took > callTimeout/2 {
			t.Errorf("%v after %v: %v", resp, took, err)
		}
		goOn()
	})
}
