package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
)

// What the machine gives is judged by bounds, and what is wrong comes with what to do.
func TestDoctorJudgesTheMachine(t *testing.T) {
	const gib = 1 << 30
	off := hugePagesFinding("always madvise [never]\n", nil)
	for _, tc := range []struct {
		name string
		got  Finding
		want Severity
		text string
	}{
		{"few files", fileFinding(256), Bad, "256 open"},
		{"the usual limit of files", fileFinding(1024), Doubtful, "1024 open"},
		{"many files", fileFinding(1 << 20), Good, "1048576 open"},
		{"files without a limit", fileFinding(1<<64 - 1), Good, "as many"},
		{"counters above the memory", memoryFinding(2*gib, gib, "x"), Bad, "2.0GiB"},
		{"counters that nearly fill the memory", memoryFinding(gib, gib+gib/2, "the limit"), Doubtful, "the limit is 1.5GiB"},
		{"counters that fit", memoryFinding(gib, 2*gib, "x"), Good, "1.0GiB"},
		{"no huge pages", hugePagesFinding("", os.ErrNotExist), Doubtful, "has no transparent"},
		{"huge pages off", off, Doubtful, "are off"},
		{"huge pages on request", hugePagesFinding("always [madvise] never\n", nil), Good, "gives"},
		{"a clock of its own", clockFinding(false), Doubtful, "is not synchronized"},
		{"a clock that is set", clockFinding(true), Good, "is synchronized"},
	} {
		if tc.got.Severity != tc.want || !strings.Contains(tc.got.Text, tc.text) || (tc.got.Advice == "") != (tc.want == Good) {
			t.Errorf("%s: %+v, want %s with %q", tc.name, tc.got, tc.want, tc.text)
		}
	}
}

// The least of the memory of the machine and the limits of all control groups above counts.
func TestMemoryLimit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  int64
		from  string
	}{
		{"nothing is known", nil, 0, ""},
		{"the machine", map[string]string{memInfoPath: "MemFree: 1 kB\nMemTotal:       2048 kB\n"}, 2 << 20, "the memory of this machine"},
		{"a group", map[string]string{memInfoPath: "MemTotal: 2048 kB\n", cgroupPath: "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "1048576\n"}, 1 << 20, "control group"},
		{"a group above", map[string]string{cgroupPath: "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "max\n", "/sys/fs/cgroup/a/memory.max": "4096\n"}, 4096, "control group"},
		{"the root of a container", map[string]string{cgroupPath: "0::/\n", "/sys/fs/cgroup/memory.max": "8192\n"}, 8192, "control group"},
		{"version 1", map[string]string{cgroupV1Limit: "512\n", memInfoPath: "MemTotal: 2048 kB\n"}, 512, "control group"},
	} {
		root := t.TempDir()
		for path, text := range tc.files {
			path = filepath.Join(root, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got, from := memoryLimit(root); got != tc.want || !strings.Contains(from, tc.from) {
			t.Errorf("%s: %d by %q, want %d by %q", tc.name, got, from, tc.want, tc.from)
		}
	}
}

func TestDoctorJudgesEtcd(t *testing.T) {
	good := etcd.InspectedMember{Endpoint: "e:1", Version: "3.6.0", Size: 1 << 20, InUse: 1 << 20, Leader: true}
	of := func(change func(*etcd.Inspection)) etcd.Inspection {
		found := etcd.Inspection{Latency: time.Millisecond, Registered: 3, Members: []etcd.InspectedMember{good}}
		change(&found)
		return found
	}
	for _, tc := range []struct {
		name string
		of   etcd.Inspection
		want Severity
		text string
	}{
		{"slow", of(func(f *etcd.Inspection) { f.Latency = 200 * time.Millisecond }), Doubtful, "within 200ms"},
		{"too slow", of(func(f *etcd.Inspection) { f.Latency = 2 * time.Second }), Bad, "leases of nodes may end"},
		{"one member", of(func(f *etcd.Inspection) { f.Registered = 1 }), Doubtful, "it has 1 members"},
		{"full", of(func(f *etcd.Inspection) { f.Alarms = []string{"NOSPACE of member 1"} }), Bad, "alarm NOSPACE of member 1"},
		{"alarms not known", of(func(f *etcd.Inspection) { f.AlarmsErr = errors.New("denied") }), Doubtful, "denied"},
		{"a member that is gone", of(func(f *etcd.Inspection) { f.Members[0].Err = errors.New("refused") }), Bad, "refused"},
		{"no leader", of(func(f *etcd.Inspection) { f.Members[0].Leader = false }), Bad, "knows no leader"},
		{"nearly full", of(func(f *etcd.Inspection) { f.Members[0].Size, f.Members[0].InUse = 1800<<20, 1800<<20 }), Doubtful, "1.8GiB"},
		{"a larger quota", of(func(f *etcd.Inspection) {
			f.Members[0].Size, f.Members[0].InUse, f.Members[0].Quota = 1800<<20, 1800<<20, 8<<30
		}), Good, "at most 8.0GiB"},
		{"fragmented", of(func(f *etcd.Inspection) { f.Members[0].Size = 600 << 20 }), Doubtful, "600MiB with 1.0MiB in use"},
		{"well", of(func(*etcd.Inspection) {}), Good, "version 3.6.0"},
	} {
		found := false
		for _, f := range etcdFindings(tc.of, true) {
			found = found || f.Severity == tc.want && strings.Contains(f.Text, tc.text) && (f.Advice == "") == (tc.want == Good)
			if tc.want == Good && f.Severity != Good {
				t.Errorf("%s: %+v", tc.name, f)
			}
		}
		if !found {
			t.Errorf("%s: %+v, want %s with %q", tc.name, etcdFindings(tc.of, true), tc.want, tc.text)
		}
	}
	for _, f := range etcdFindings(of(func(f *etcd.Inspection) { f.Registered = 1 }), false) {
		if f.Severity != Good {
			t.Errorf("the etcd in a node's process: %+v", f)
		}
	}
}

func TestDoctorComparesNodes(t *testing.T) {
	same := []Running{{"a", "v1", "r"}, {"b", "v1", "r"}, {ID: "gone"}}
	if found := CompareNodes(same); len(found) > 0 {
		t.Errorf("nodes that agree: %+v", found)
	}
	found := CompareNodes(append(same, Running{"c", "v2", "s"}))
	if len(found) != 2 || !strings.Contains(found[0].Text, "v1 (a, b), v2 (c)") || !strings.Contains(found[1].Text, "r (a, b), s (c)") {
		t.Errorf("nodes that differ: %+v", found)
	}
}

// A peer whose clock is wrong, one at whose address another node answers, and rules that differ are found in a cluster that runs.
func TestDoctorFindsPeersThatDiffer(t *testing.T) {
	t.Parallel()
	info, err := apart(t, testOptions(t), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	opts := testOptions(t)
	opts.ID, opts.Etcd = "c", []string{info.Etcd}
	announce(t, info, cluster.Node{ID: "b", Address: info.GRPC, State: cluster.Joining, RulesHash: "other"})
	found := Examine(t.Context(), opts)
	for _, want := range []struct {
		severity         Severity
		subject          string
		begin, end, todo string // of the text and the advice
	}{
		{Bad, "node a", "answers at " + info.GRPC + "; node a's clock is ", " ahead of this node's, and 1s are allowed: set the wrong clock, as with NTP", "see whether it runs"},
		{Bad, "node b", "does not answer at " + info.GRPC + ": ", `node "a" answers at ` + info.GRPC + ` instead of node "b"`, "see whether it runs"},
		{Doubtful, "rules", "the nodes have different rules: ", " (a), other (b)", "give all nodes the same files"},
	} {
		if !slices.ContainsFunc(found, func(f Finding) bool {
			return f.Severity == want.severity && f.Subject == want.subject && strings.HasPrefix(f.Text, want.begin) && strings.HasSuffix(f.Text, want.end) && strings.HasPrefix(f.Advice, want.todo)
		}) {
			t.Errorf("%+v is missing among %+v", want, found)
		}
	}
}

// announce registers a node in the etcd of another one, until the test ends.
func announce(t *testing.T, info Info, n cluster.Node) {
	t.Helper()
	r, err := etcd.Open(t.Context(), etcd.Config{Endpoints: []string{info.Etcd}, Cluster: "default", Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		runs.Wait()
		r.Close()
	})
	if n.Incarnation, err = r.NextIncarnation(t.Context(), n.ID); err != nil {
		t.Fatal(err)
	}
	r.Announce(n)
	runs.Go(func() { _ = r.Run(ctx, func(cluster.RegistryContent) {}) }) // it ends with the test
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for hung := time.After(time.Minute); ; {
		nodes, err := r.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(nodes, func(other cluster.Node) bool { return other.ID == n.ID }) {
			return
		}
		select {
		case <-again.C:
		case <-hung:
			t.Fatalf("node %s is not registered", n.ID)
		}
	}
}
