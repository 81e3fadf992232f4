package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/cluster/snapshot"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// runWeir runs a command of the binary and returns what it has printed, and whether it has succeeded.
func runWeir(t *testing.T, args ...string) (out string, ok bool) {
	t.Helper()
	b, err := exec.Command(process.Binary(t), args...).CombinedOutput()
	return string(b), err == nil
}

// Counters of two nodes go on in a cluster of another name, where a second node takes half of them.
func TestCountersMoveToANewCluster(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	rules := writeRules(t, yearlyRules())
	etcd := process.StartEtcd(t)
	dirs := []string{t.TempDir(), t.TempDir()}
	start := func(cluster, id, dir string) *process.Node {
		return process.Start(t, "--rules", rules, "--etcd", etcd.Endpoint, "--cluster", cluster, "--id", id, "--data-dir", dir, "--peer-timeout", "4s")
	}
	old := []*process.Node{start("one", "a", dirs[0]), start("one", "b", dirs[1])}
	process.AwaitMembers(t, process.Patience, old...)
	takeYearly(t, old, 50)

	file := filepath.Join(t.TempDir(), "one.counters")
	export := []string{"snapshot", "export", file, "--data-dir", dirs[0], "--data-dir", dirs[1]}
	if out, ok := runWeir(t, export...); ok || !strings.Contains(out, "in use by another process; stop the node") {
		t.Errorf("counters of nodes that run: %s", out)
	}
	stopAll(t, old...)
	out, ok := runWeir(t, export...)
	if !ok || !strings.Contains(out, "counters    180, of which 0 are over") || !strings.Contains(out, "partitions  1021 of 1021") {
		t.Fatalf("export: %s", out)
	}

	dir := filepath.Join(t.TempDir(), "new")
	imports := []string{"snapshot", "import", file, "--data-dir", dir, "--cluster", "two", "--id", "x"}
	if out, ok := runWeir(t, append(imports, "--dry-run")...); !ok || !strings.Contains(out, "Nothing is written") {
		t.Fatalf("dry run: %s", out)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the dry run has made the directory: %v", err)
	}
	if out, ok := runWeir(t, imports...); !ok || !strings.Contains(out, "counters    180,") {
		t.Fatalf("import: %s", out)
	}
	x := start("two", "x", dir)
	if out, ok := runWeir(t, append(imports, "--replace", "--dry-run")...); ok || !strings.Contains(out, "in use by another process") {
		t.Errorf("import into the directory of a node that runs: %s", out)
	}
	fresh := []*process.Node{x, start("two", "y", t.TempDir())}
	process.AwaitMembers(t, process.Patience, fresh...)
	takeYearly(t, fresh, 20)
	stopAll(t, fresh...) // the snapshots of the new cluster count from now on
	startAgain(t, fresh...)
	if n := takeYearly(t, fresh, 30); n != yearlyKeys*6 {
		t.Errorf("30 tokens are left of %d of %d keys", n, yearlyKeys*6)
	}
	if n := takeYearly(t, fresh, 1); n != 0 {
		t.Errorf("31 tokens were left of %d keys", n)
	}
}

// Neither snapshots nor their export have names of callers, and only their owner can read the export.
func TestExportedCountersHaveNoNames(t *testing.T) {
	t.Parallel()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "counters")
	n := process.Start(t, "--rules", writeRules(t, yearlyRules()), "--data-dir", dir)
	const name = "SecretUser"
	for _, a := range yearly {
		decide(t, n, &weirv1.RateLimitRequest{IdentifierType: a, Identifier: name})
	}
	stopAll(t, n)
	if out, ok := runWeir(t, "snapshot", "export", file, "--data-dir", dir); !ok || !strings.Contains(out, "counters    6, of which 0 are over") {
		t.Fatalf("export: %s", out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, path := range []string{file, snapshot.Path(dir)} {
		if content, err := os.ReadFile(path); err != nil || len(content) == 0 || bytes.Contains(content, []byte(name)) {
			t.Errorf("%s: %v, %d bytes, has a name: %t", path, err, len(content), bytes.Contains(content, []byte(name)))
		}
	}
}

// A node with imported counters does not join a cluster that has another secret.
func TestImportedCountersDoNotCountInAnotherCluster(t *testing.T) {
	t.Parallel()
	rules := writeRules(t, yearlyRules())
	etcd := process.StartEtcd(t)
	fromDir := t.TempDir()
	from := process.Start(t, "--rules", rules, "--cluster", "one", "--data-dir", fromDir)
	stopAll(t, from)
	process.Start(t, "--rules", rules, "--etcd", etcd.Endpoint, "--cluster", "two")
	file, dir := filepath.Join(t.TempDir(), "one.counters"), t.TempDir()
	if out, ok := runWeir(t, "snapshot", "export", file, "--data-dir", fromDir); !ok {
		t.Fatal(out)
	}
	if out, ok := runWeir(t, "snapshot", "import", file, "--data-dir", dir, "--cluster", "two", "--id", "x"); !ok {
		t.Fatal(out)
	}
	serve := []string{"serve", "--rules", rules, "--etcd", etcd.Endpoint, "--cluster", "two", "--data-dir", dir, "--grpc", process.Host(t) + ":0", "--http", process.Host(t) + ":0"}
	if out, ok := runWeir(t, append(serve, "--id", "x")...); ok || !strings.Contains(out, "count only in a cluster that this node founds") {
		t.Errorf("joined with another secret: %s", out)
	}
	if out, ok := runWeir(t, append(serve, "--id", "z")...); ok || !strings.Contains(out, "start it as --cluster two --id x") {
		t.Errorf("started as another node: %s", out)
	}
}
