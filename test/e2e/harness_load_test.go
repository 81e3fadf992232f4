package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// tally counts what the callers of a load got to see.
type tally struct {
	owner, provisional, failOpen, denied, errs atomic.Int64
	firstErr                                   atomic.Pointer[error]
}

func (c *tally) add(resp *weirv1.RateLimitResponse, err error) {
	switch {
	case err != nil:
		c.errs.Add(1)
		c.firstErr.CompareAndSwap(nil, &err)
		return
	case resp.GetSource() == weirv1.Source_SOURCE_OWNER, resp.GetSource() == weirv1.Source_SOURCE_LENT,
		resp.GetSource() == weirv1.Source_SOURCE_RELAYED:
		c.owner.Add(1)
	case resp.GetSource() == weirv1.Source_SOURCE_PROVISIONAL:
		c.provisional.Add(1)
	case resp.GetSource() == weirv1.Source_SOURCE_FAIL_OPEN:
		c.failOpen.Add(1)
	default:
		c.errs.Add(1)
		err = fmt.Errorf("source %v", resp.GetSource())
		c.firstErr.CompareAndSwap(nil, &err)
	}
	if !resp.GetAllowed() {
		c.denied.Add(1)
	}
}

// decided fails the test unless owners have decided all but a few checks. On a
// machine that is busy with something else, a process may now and then get no
// processor for longer than a check may wait; a dead owner would be a third.
func (c *tally) decided(t *testing.T) {
	t.Helper()
	owner, failOpen := c.owner.Load(), c.failOpen.Load()
	if failOpen*100 > owner || owner == 0 {
		t.Errorf("%d checks decided by owners, %d provisionally, %d allowed undecided", owner, c.provisional.Load(), failOpen)
	}
}

// noErrors fails the test if a caller got an error.
func (c *tally) noErrors(t *testing.T) {
	t.Helper()
	if n := c.errs.Load(); n > 0 {
		t.Errorf("%d errors, the first: %v", n, *c.firstErr.Load())
	}
}

// load asks the nodes about a few hundred users, over and over, until the returned
// function is called. Its patience is far beyond what a check may take, on a busy machine too,
// and yet there is an error after it.
func load(nodes []*process.Node, into *atomic.Pointer[tally]) (stop func()) {
	const callersPerNode, users, loadPatience = 2, 300, 10 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i, n := range nodes {
		for j := range callersPerNode {
			wg.Go(func() {
				pace := time.NewTicker(2 * time.Millisecond)
				defer pace.Stop()
				for k := i + j; ctx.Err() == nil; k++ {
					call, done := context.WithTimeout(ctx, loadPatience)
					resp, err := n.Client.Check(call, user(fmt.Sprint("user-", k%users)))
					done()
					if ctx.Err() != nil && err != nil {
						return // broken off by the end of the load
					}
					into.Load().add(resp, err)
					<-pace.C
				}
			})
		}
	}
	return func() { cancel(); wg.Wait() }
}

// newTally makes the load count from zero, and returns what it has counted.
func newTally(into *atomic.Pointer[tally]) *tally {
	old := into.Swap(new(tally))
	return old
}

// pause waits, and only the test's deadline ends it early.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatal(ctx.Err())
	}
}
