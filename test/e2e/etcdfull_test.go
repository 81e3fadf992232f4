package e2e

import (
	"regexp"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/test/process"
)

// An etcd that is full answers, but never tells the others that a node leaves. The node does not wait
// for them. weir doctor says that etcd is full.
func TestLeavingWhileEtcdIsFull(t *testing.T) {
	t.Parallel()
	etcd, nodes := startThree(t, rulesPerYear(1_000_000))
	raiseAlarm(t, etcd, etcdserverpb.AlarmType_NOSPACE)
	doctorNames(t, etcd, `\nerror etcd .*database space exceeded; to do: see its alarms below`,
		`\nerror etcd alarm NOSPACE of member [0-9a-f]+: etcd accepts no writes; to do: compact and defragment it .*, then etcdctl alarm disarm`, `\nok cluster "default" has 3 nodes`)
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

// weir doctor names the alarm of an etcd that has found itself corrupt, and what to do.
func TestDoctorOfCorruptEtcd(t *testing.T) {
	t.Parallel()
	etcd := process.StartEtcd(t)
	raiseAlarm(t, etcd, etcdserverpb.AlarmType_CORRUPT)
	doctorNames(t, etcd, `\nerror etcd alarm CORRUPT of member [0-9a-f]+: etcd accepts no writes; to do: see the log of that member, and replace it from a backup`)
}

// raiseAlarm has an etcd behave as if it had found the reason for an alarm.
func raiseAlarm(t *testing.T, etcd *process.Etcd, alarm etcdserverpb.AlarmType) {
	t.Helper()
	conn, err := grpc.NewClient(etcd.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raised := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: alarm}
	if _, err := etcdserverpb.NewMaintenanceClient(conn).Alarm(t.Context(), raised); err != nil {
		t.Fatal(err)
	}
}

// doctorNames fails the test unless weir doctor finds an error in an etcd and prints what matches all patterns.
func doctorNames(t *testing.T, etcd *process.Etcd, patterns ...string) {
	t.Helper()
	out, code := doctor(t, "--id", "d", "--grpc", freeAddress(t), "--http", freeAddress(t), "--etcd", etcd.Endpoint, "--data-dir", t.TempDir())
	for _, pattern := range patterns {
		if code != 1 || !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("exit code %d, want 1 and %s:\n%s", code, pattern, out)
		}
	}
}
