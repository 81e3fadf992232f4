package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/test/process"
)

// writeRules writes a rules file and returns its path.
func writeRules(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// rulesPerYear limits users to so much a year, wherever they go: long enough for
// hardly any test to see a window's edge.
func rulesPerYear(limit int) string {
	return fmt.Sprintf(`domain: default
rules:
  - id: per-user
    per: [user]
    limits: [{limit: %d, window: 365d}]
`, limit)
}

// startThree starts an etcd and three nodes that join it, and waits until they are
// one cluster.
func startThree(t testing.TB, rules string, args ...string) (*process.Etcd, []*process.Node) {
	t.Helper()
	return startThreeWith(t, append([]string{"--rules", writeRules(t, rules)}, args...)...)
}

// startThreeWith is startThree for nodes that need no rules file.
func startThreeWith(t testing.TB, args ...string) (*process.Etcd, []*process.Node) {
	t.Helper()
	etcd := process.StartEtcd(t)
	nodes := make([]*process.Node, 3)
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() { nodes[i] = process.Start(t, append([]string{"--etcd", etcd.Endpoint}, args...)...) })
	}
	wg.Wait()
	process.AwaitSettled(t, process.Patience, nodes...)
	return etcd, nodes
}

func user(name string) *weirv1.RateLimitRequest {
	return &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: name}
}

// decide asks a node about one request until it decides. A node that is late with everything, as it is where processors are busy,
// refuses checks and counts nothing of them.
func decide(t *testing.T, n *process.Node, req *weirv1.RateLimitRequest) (resp *weirv1.RateLimitResponse) {
	t.Helper()
	process.Await(t, process.Patience, func() (err error) {
		resp, err = n.Client.Check(t.Context(), req)
		if err != nil && status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
		return err
	})
	return resp
}
