package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

// quota is the time of one processor that a node gets in each period.
type quota struct{ time, period time.Duration }

var (
	fifth     = quota{time.Millisecond, 5 * time.Millisecond} // in periods that are shorter than what a check may take
	twoFifths = quota{2 * time.Millisecond, 5 * time.Millisecond}
	rarely    = quota{4 * time.Millisecond, 60 * time.Millisecond} // so that it always comes late to what it reads
)

// throttle holds nodes to a share of a processor: by control groups of version 1 or 2 where this process may make some, which
// also prefer the load, or else by signals that stop the nodes.
type throttle struct {
	t      *testing.T
	quota  quota
	groups string // the directory of the groups; empty if there are none
	v2     bool
}

// cgroups is where control groups are mounted.
const cgroups = "/sys/fs/cgroup"

// newThrottle prefers this process, and what it starts, as the load.
func newThrottle(t *testing.T, q quota) *throttle {
	t.Helper()
	th := &throttle{t: t, quota: q}
	for _, dir := range []string{filepath.Join(cgroups, "cpu"), cgroups} {
		v2 := dir == cgroups
		if v2 && enableCPU(dir) != nil {
			continue
		}
		if probe := filepath.Join(dir, th.name("probe")); os.Mkdir(probe, 0o755) == nil && os.Remove(probe) == nil {
			th.groups, th.v2 = dir, v2
			break
		}
	}
	if th.groups == "" {
		t.Log("this process may not make control groups: nodes are held by signals")
		return th
	}
	settings := map[string]string{"cpu.shares": "65536"}
	if th.v2 {
		settings = map[string]string{"cpu.weight": "10000"}
	}
	th.move(os.Getpid(), th.group("load", settings))
	t.Cleanup(func() { th.move(os.Getpid(), filepath.Join(th.groups, "cgroup.procs")) })
	return th
}

// enableCPU has the groups in a directory of version 2 control processor time.
func enableCPU(dir string) error {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	if !strings.Contains(" "+strings.TrimSpace(string(controllers))+" ", " cpu ") {
		return fmt.Errorf("%s does not control processor time", dir)
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu"), 0o600)
}

func (th *throttle) name(group string) string { return fmt.Sprintf("weir-%d-%s", os.Getpid(), group) }

// group makes a control group and returns its file for processes.
func (th *throttle) group(name string, settings map[string]string) (procs string) {
	th.t.Helper()
	dir := filepath.Join(th.groups, th.name(name))
	err := os.Mkdir(dir, 0o755)
	th.t.Cleanup(func() { _ = os.Remove(dir) }) // it is empty once its processes have ended
	for file, value := range settings {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), []byte(value), 0o600)
		}
	}
	if err != nil {
		th.t.Fatal(err)
	}
	return filepath.Join(dir, "cgroup.procs")
}

func (th *throttle) move(pid int, procs string) {
	th.t.Helper()
	if err := os.WriteFile(procs, fmt.Append(nil, pid), 0o600); err != nil {
		th.t.Fatal(err)
	}
}

// share prepares what holds a node to its share, which it does when it is called. It outlives the node.
func (th *throttle) share(name string) (hold func(*process.Node)) {
	th.t.Helper()
	if th.groups == "" {
		return th.interrupt
	}
	period, share := th.quota.period.Microseconds(), th.quota.time.Microseconds()
	settings := map[string]string{
		"cpu.shares": "16384", "cpu.cfs_period_us": fmt.Sprint(period), "cpu.cfs_quota_us": fmt.Sprint(share),
	}
	if th.v2 {
		settings = map[string]string{"cpu.weight": "2500", "cpu.max": fmt.Sprint(share, " ", period)}
	}
	procs := th.group(name, settings)
	return func(n *process.Node) { th.move(n.PID(), procs) }
}

// interrupt stops a node in each period, except for its share of that, until the test ends.
func (th *throttle) interrupt(n *process.Node) {
	ended := make(chan struct{})
	var interrupting sync.WaitGroup
	interrupting.Go(func() {
		next := time.NewTimer(0)
		defer next.Stop()
		for runs := false; ; runs = !runs {
			select {
			case <-ended:
				_ = syscall.Kill(n.PID(), syscall.SIGCONT) // it may have ended
				return
			case <-next.C:
			}
			signal, wait := syscall.SIGSTOP, th.quota.period-th.quota.time
			if !runs {
				signal, wait = syscall.SIGCONT, th.quota.time
			}
			if err := syscall.Kill(n.PID(), signal); err != nil {
				return
			}
			next.Reset(wait)
		}
	})
	th.t.Cleanup(func() { close(ended); interrupting.Wait() })
}
