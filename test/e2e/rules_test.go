package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

const manyRules = 1000

// itemRules limits users to so much a year, on each of so many endpoints.
func itemRules(rules, limit int) string {
	var text strings.Builder
	text.WriteString("domain: default\nrules:\n")
	for i := range rules {
		fmt.Fprintf(&text, "  - id: item-%d\n    when: {endpoint: /item/%d, method: [GET, POST]}\n    per: [user]\n    limits:\n"+
			"      - {limit: %d, window: 365d}\n      - {limit: %d, window: 1d, algorithm: token_bucket}\n", i, i, limit, limit+1)
	}
	return text.String()
}

func item(i int, name string) *weirv1.RateLimitRequest {
	req := user(name)
	req.Endpoint, req.Attributes = fmt.Sprint("/item/", i), map[string]string{"method": "GET"}
	return req
}

// apply stores rules through a node.
func apply(t *testing.T, n *process.Node, text string) *weirv1.ApplyRulesResponse {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	resp, err := n.Client.Config().ApplyRules(ctx, &weirv1.ApplyRulesRequest{RulesGzip: b.Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// awaitRevision waits until every node reports that every node runs the rules.
func awaitRevision(t *testing.T, revision string, nodes []*process.Node) {
	t.Helper()
	process.Await(t, process.Patience, func() error {
		for _, n := range nodes {
			for _, m := range n.Nodes().GetNodes() {
				if m.GetRulesHash() != revision {
					return fmt.Errorf("%s says that %s runs %s, not %s", n.ID, m.GetId(), m.GetRulesHash(), revision)
				}
			}
		}
		return nil
	})
}

// saidAt returns when the node has logged something about a revision of the store,
// by its own clock, which is that of this machine. The test may see it much later.
func saidAt(t *testing.T, n *process.Node, message string, revision int64) time.Time {
	t.Helper()
	for line := range strings.Lines(n.Log()) {
		var entry struct {
			Time          time.Time `json:"time"`
			Msg           string    `json:"msg"`
			StoreRevision int64     `json:"revision"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == message && entry.StoreRevision == revision {
			return entry.Time
		}
	}
	t.Fatalf("%s has not said %q of revision %d:\n%s", n.ID, message, revision, n.Log())
	return time.Time{}
}

// A thousand rules change again and again under 1,000 checks a second: no check
// fails or goes undecided, and every node runs the new rules within a second.
func TestRulesChangeUnderLoad(t *testing.T) {
	testform.NotInBrief(t)
	const rounds = 8
	_, nodes := startThreeWith(t, "--peer-timeout", "4s") // what counts is that all are decided
	awaitRevision(t, apply(t, nodes[0], itemRules(manyRules, 1_000_000)).GetRulesHash(), nodes)
	var counts tally
	stop := itemLoad(nodes, &counts)
	defer stop()
	began := time.Now()

	var slowest [rounds]time.Duration // of the nodes
	var slowestCall, slowestReport time.Duration
	for round := 1; round <= rounds; round++ {
		limit := 1_000_000 + round
		before := counts.owner.Load()
		asked, sent := nodes[round%3], time.Now()
		resp := apply(t, asked, itemRules(manyRules, limit))
		returned := time.Now()
		if resp.GetRevision() != int64(round+1) || len(resp.GetChanges()) != manyRules {
			t.Fatalf("round %d: revision %d, %d changes", round, resp.GetRevision(), len(resp.GetChanges()))
		}
		awaitRevision(t, resp.GetRulesHash(), nodes)
		slowestReport = max(slowestReport, time.Since(returned))
		accepted := saidAt(t, asked, "rules stored", resp.GetRevision())
		for i, n := range nodes {
			inForce := saidAt(t, n, "rules changed", resp.GetRevision())
			slowest[round-1], slowestCall = max(slowest[round-1], inForce.Sub(accepted)), max(slowestCall, inForce.Sub(sent))
			req := item((round*331+i)%manyRules, "looker")
			req.Peek = true
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
			answer, err := n.Client.Check(ctx, req)
			cancel()
			if err != nil || int(answer.GetLimit()) != limit {
				t.Errorf("round %d: %s holds to %v, %v, want %d", round, n.ID, answer, err, limit)
			}
		}
		process.Await(t, process.Patience, func() error { // some load on these rules too
			if done := counts.owner.Load() - before; done < 300 {
				return fmt.Errorf("%d checks since the change", done)
			}
			return nil
		})
	}
	rate := float64(counts.owner.Load()) / time.Since(began).Seconds()
	stop()
	counts.noErrors(t)
	if n := counts.failOpen.Load(); n > 0 {
		t.Errorf("%d checks were allowed undecided", n)
	}
	if n := counts.denied.Load(); n > 0 {
		t.Errorf("%d checks were denied", n)
	}
	t.Logf("%d changes of %d rules under %.0f checks/s: in force everywhere at most %v after etcd has accepted them and %v after the call was made, "+
		"reported by all at most %v after it returned", rounds, manyRules, rate, slices.Max(slowest[:]).Round(time.Millisecond),
		slowestCall.Round(time.Millisecond), slowestReport.Round(time.Millisecond))
	// A machine that is busy with something else is late now and then, not in half of the rounds.
	slices.Sort(slowest[:])
	if median := slowest[rounds/2]; median > time.Second && !testform.RaceEnabled {
		t.Errorf("in half of the rounds a node ran new rules %v after etcd had accepted them or later, more than 1s", median)
	}
}

// itemLoad asks the nodes about all items 1,000 times a second in all, if they
// keep up.
func itemLoad(nodes []*process.Node, into *tally) (stop func()) {
	const callersPerNode = 4
	every := time.Duration(len(nodes)*callersPerNode) * 850 * time.Microsecond // a ticker drops what comes too late
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i, n := range nodes {
		for j := range callersPerNode {
			wg.Go(func() {
				pace := time.NewTicker(every)
				defer pace.Stop()
				for k := 97 * (i*callersPerNode + j); ; k++ {
					select {
					case <-pace.C:
					case <-ctx.Done():
						return
					}
					call, done := context.WithTimeout(context.Background(), process.Patience)
					into.add(n.Client.Check(call, item(k%manyRules, fmt.Sprint("user-", k%50))))
					done()
				}
			})
		}
	}
	return sync.OnceFunc(func() { cancel(); wg.Wait() })
}

// weirRules runs weir rules against a node.
func weirRules(t *testing.T, n *process.Node, stdin string, args ...string) (code int, output string) {
	t.Helper()
	cmd := exec.Command(process.Binary(t), append(append([]string{"rules"}, args...), "--node", n.GRPC)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return exitCode(err), string(out)
}

// The command waits for all nodes, and names the one that does not follow.
func TestApplyWaitsForAllNodes(t *testing.T) {
	t.Parallel()
	_, nodes := startThreeWith(t)
	code, out := weirRules(t, nodes[0], itemRules(2, 5), "apply", "-f", "-")
	if code != 0 || !strings.HasPrefix(out, "+ default/item-0\n+ default/item-1\nstored as revision 1 (") || !strings.HasSuffix(out, ")\nall 3 nodes run it\n") {
		t.Errorf("exit code %d, %s", code, out)
	}
	nodes[2].Signal(syscall.SIGSTOP)
	code, out = weirRules(t, nodes[0], itemRules(2, 6), "apply", "-f", "-", "--timeout", "1s")
	nodes[2].Signal(syscall.SIGCONT)
	want := "weir: the rules are stored, but after 1s some nodes do not run them: " + nodes[2].ID + " at " + nodes[2].GRPC + " runs "
	if code != 1 || !strings.Contains(out, "stored as revision 2 (") || !strings.Contains(out, want) || strings.Contains(out, nodes[1].ID) {
		t.Errorf("exit code %d, %s", code, out)
	}
	if code, out := weirRules(t, nodes[1], itemRules(2, 6), "apply", "-f", "-", "--timeout", "20s"); code != 0 || !strings.Contains(out, "still at revision 2") {
		t.Errorf("once it goes on: exit code %d, %s", code, out)
	}
}

// Without etcd the rules stay, a change is refused, and afterwards all is as before;
// a node that is started again finds them.
func TestRulesWithoutEtcd(t *testing.T) {
	t.Parallel()
	etcd, nodes := startThreeWith(t)
	awaitRevision(t, apply(t, nodes[0], itemRules(manyRules, 7)).GetRulesHash(), nodes)
	etcd.Kill()
	if code, out := weirRules(t, nodes[1], itemRules(3, 9), "apply", "-f", "-"); code != 2 || !strings.Contains(out, "no answer in 2s; the change may have been made or not") {
		t.Errorf("without etcd: exit code %d, %s", code, out)
	}
	for _, n := range nodes {
		if got := limitOf(t, n, 3); got != 7 {
			t.Errorf("%s holds to %d without etcd", n.ID, got)
		}
	}
	etcd.Start()
	process.Await(t, process.Patience, func() error {
		if code, out := weirRules(t, nodes[1], itemRules(manyRules, 8), "apply", "-f", "-"); code != 0 {
			return fmt.Errorf("exit code %d, %s", code, out)
		}
		return nil
	})
	nodes[2].Kill()
	nodes[2].Restart()
	if got := limitOf(t, nodes[2], 3); got != 8 {
		t.Errorf("started again, %s holds to %d", nodes[2].ID, got)
	}
}

// limitOf returns the limit that a node holds an item to.
func limitOf(t *testing.T, n *process.Node, i int) uint32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	resp, err := n.Client.Check(ctx, item(i, "alice"))
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetLimit()
}

// A value in etcd that Weir has not written changes no rules, shows in the status, and is not overwritten.
func TestDamagedRulesInEtcd(t *testing.T) {
	t.Parallel()
	etcd, nodes := startThreeWith(t)
	awaitRevision(t, apply(t, nodes[0], itemRules(3, 7)).GetRulesHash(), nodes)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const key = "/weir/default/rules"
	good, err := c.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), key, "weir rules 99\nfrom the future"); err != nil {
		t.Fatal(err)
	}
	const why = `etcd:/weir/default/rules: the rules have the format "99", and this node reads format 1: another version of weir has written them`
	for _, n := range nodes {
		process.Await(t, process.Patience, func() error {
			if health := getHealth(t, n); !health.Degraded || !strings.Contains(strings.Join(health.Reasons, " "), why) {
				return fmt.Errorf("%s: %+v", n.ID, health)
			}
			return nil
		})
		if got := limitOf(t, n, 2); got != 7 {
			t.Errorf("%s holds to %d", n.ID, got)
		}
		_, err := n.Client.Config().DeleteRateLimit(t.Context(), &weirv1.DeleteRateLimitRequest{Id: "item-2"})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), why) {
			t.Errorf("a change through %s: %v", n.ID, err)
		}
	}
	if _, err := c.Put(t.Context(), key, string(good.Kvs[0].Value)); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		process.Await(t, process.Patience, func() error {
			if health := getHealth(t, n); health.Degraded {
				return fmt.Errorf("%s: %+v", n.ID, health)
			}
			return nil
		})
	}

	// A key that is gone is no order to forget everything: the next change heals it.
	if _, err := c.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		process.Await(t, process.Patience, func() error {
			if reasons := strings.Join(getHealth(t, n).Reasons, " "); !strings.Contains(reasons, "revision 1 of the rules is gone from etcd") {
				return fmt.Errorf("%s: %s", n.ID, reasons)
			}
			return nil
		})
	}
	if _, err := nodes[1].Client.Config().DeleteRateLimit(t.Context(), &weirv1.DeleteRateLimitRequest{Id: "item-2"}); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		process.Await(t, process.Patience, func() error {
			resp, err := n.Client.Config().ListRateLimits(t.Context(), &weirv1.ListRateLimitsRequest{})
			if err == nil && (len(resp.GetRateLimits()) != 2 || resp.GetRevision() != 2 || getHealth(t, n).Degraded) {
				return fmt.Errorf("%s: %v", n.ID, resp)
			}
			return err
		})
	}
}

// Nodes with a file keep it, and say so when they are asked to change it.
func TestFileWinsOverStore(t *testing.T) {
	t.Parallel()
	path := writeRules(t, rulesPerYear(7))
	n := process.Start(t, "--rules", path)
	code, out := weirRules(t, n, itemRules(2, 5), "apply", "-f", "-")
	want := "weir: node " + n.GRPC + ": rules cannot be changed through this node: it takes them from " + path + "; change them there, or start it without --rules\n"
	if code != 2 || out != want {
		t.Errorf("exit code %d, %s", code, out)
	}
	if code, out := weirRules(t, n, "", "list"); code != 0 || !strings.Contains(out, "per-user") || !strings.Contains(out, "revision 0 (") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// However many create rules at once, through all nodes, nothing is lost.
func TestConcurrentCreates(t *testing.T) {
	t.Parallel()
	_, nodes := startThreeWith(t)
	const each = 15
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for i, n := range nodes {
		for j := range each {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
				defer cancel()
				limit := uint32(1)
				_, err := n.Client.Config().CreateRateLimit(ctx, &weirv1.CreateRateLimitRequest{
					RateLimit: &weirv1.RateLimit{Id: fmt.Sprintf("r-%d-%d", i, j), Limit: &limit, WindowSeconds: 60},
				})
				if err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			})
		}
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
	for _, n := range nodes {
		process.Await(t, process.Patience, func() error {
			resp, err := n.Client.Config().ListRateLimits(t.Context(), &weirv1.ListRateLimitsRequest{})
			if err == nil && (len(resp.GetRateLimits()) != 3*each || resp.GetRevision() != 3*each) {
				return fmt.Errorf("%s has %d rules at revision %d", n.ID, len(resp.GetRateLimits()), resp.GetRevision())
			}
			return err
		})
	}
}
