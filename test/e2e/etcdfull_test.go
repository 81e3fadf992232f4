package e2e

import (
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/test/process"
)

// An etcd that is full answers, but never tells the others that a node leaves. The node does not wait
// for them.
func TestLeavingWhileEtcdIsFull(t *testing.T) {
	t.Parallel()
	etcd, nodes := startThree(t, rulesPerYear(1_000_000))
	conn, err := grpc.NewClient(etcd.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	full := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE}
	if _, err := etcdserverpb.NewMaintenanceClient(conn).Alarm(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	leaver := nodes[2]
	view := process.AwaitMembers(t, process.Patience, nodes...)
	leaver.Signal(syscall.SIGTERM)
	if code := leaver.Wait(15 * time.Second); code != 0 { // others would have 20 s to fetch what it holds
		t.Errorf("exit code %d", code)
	}
	if got := nodes[0].Nodes().GetView(); got != view {
		t.Errorf("view %d follows %d, although etcd takes nothing", got, view)
	}
}
