package e2e

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/cluster/snapshot"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// yearly are the algorithms for which yearlyRules limits an identifier of that type to 100 a year.
var yearly = []string{"sliding_window", "fixed_window", "token_bucket", "gcra", "sliding_window_log", "sliding_window_buckets"}

func yearlyRules() string {
	var b strings.Builder
	b.WriteString("domain: default\nrules:\n")
	for _, a := range yearly {
		fmt.Fprintf(&b, "  - id: %[1]s\n    per: [%[1]s]\n    limits: [{limit: 100, window: 365d, algorithm: %[1]s}]\n", a)
	}
	return b.String()
}

// yearlyKeys is how many keys tests of snapshots have of each algorithm.
const yearlyKeys = 30

// takeYearly asks the nodes in turn for so many tokens of each key at once, and returns of how many keys they were allowed.
func takeYearly(t *testing.T, nodes []*process.Node, tokens int64) (allowed int) {
	t.Helper()
	for _, a := range yearly {
		for i := range yearlyKeys {
			req := &weirv1.RateLimitRequest{IdentifierType: a, Identifier: fmt.Sprint("key-", i), TokensRequested: tokens}
			resp := decide(t, nodes[i%len(nodes)], req)
			if resp.GetSource() == weirv1.Source_SOURCE_FAIL_OPEN {
				t.Errorf("%s %d is undecided", a, i)
			}
			if resp.GetAllowed() {
				allowed++
			}
		}
	}
	return allowed
}

// halfIsLeft fails unless exactly 50 tokens of each key are left.
func halfIsLeft(t *testing.T, nodes []*process.Node) {
	t.Helper()
	const all = yearlyKeys * 6
	if n := takeYearly(t, nodes, 50); n != all {
		t.Errorf("50 tokens are left of %d of %d keys", n, all)
	}
	if n := takeYearly(t, nodes, 1); n != 0 {
		t.Errorf("51 tokens were left of %d of %d keys", n, all)
	}
}

// startAgain starts nodes at the same time that have ended, and waits until they are one cluster.
func startAgain(t *testing.T, nodes ...*process.Node) {
	t.Helper()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(n.Restart)
	}
	wg.Wait()
	process.AwaitMembers(t, process.Patience, nodes...)
	process.Await(t, process.Patience, func() error {
		for _, n := range nodes[0].Nodes().GetNodes() {
			if n.GetActive() == 0 || n.GetWanted()+n.GetLeaving() > 0 {
				return fmt.Errorf("%v", n)
			}
		}
		return nil
	})
}

func stopAll(t *testing.T, nodes ...*process.Node) {
	t.Helper()
	for _, n := range nodes {
		n.Signal(syscall.SIGTERM)
	}
	for _, n := range nodes {
		if code := n.Wait(process.Patience); code != 0 {
			t.Errorf("%s has ended with %d", n.ID, code)
		}
	}
}

func TestCountersSurviveARestartOfASingleNode(t *testing.T) {
	t.Parallel()
	n := process.Start(t, "--rules", writeRules(t, yearlyRules()))
	takeYearly(t, []*process.Node{n}, 50)
	for range 2 { // the second time from what was restored, and never asked for
		stopAll(t, n)
		n.Restart()
	}
	halfIsLeft(t, []*process.Node{n})
}

func TestCountersSurviveARestartOfAllNodes(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	_, nodes := startThree(t, yearlyRules(), "--peer-timeout", "4s")
	takeYearly(t, nodes, 20)
	stopAll(t, nodes...)
	startAgain(t, nodes...)
	takeYearly(t, nodes, 30)
	stopAll(t, nodes...)
	startAgain(t, nodes...)
	halfIsLeft(t, nodes)
}

func TestCountersSurviveAKillOfAllNodes(t *testing.T) {
	t.Parallel()
	_, nodes := startThree(t, yearlyRules(), "--peer-timeout", "4s", "--snapshot-every", "1s")
	takeYearly(t, nodes, 50)
	for range 2 { // the first one may have been begun before, and the second one was not
		since := float64(time.Now().UnixNano()) / 1e9
		for _, n := range nodes {
			process.Await(t, process.Patience, func() error {
				if at := n.Metric(t, "weir_snapshot_timestamp_seconds"); at < since {
					return fmt.Errorf("the last snapshot of %s is from %v, want one since %v", n.ID, at, since)
				}
				return nil
			})
		}
	}
	for _, n := range nodes {
		n.Kill()
	}
	startAgain(t, nodes...)
	halfIsLeft(t, nodes)
}

// usage is what a load has asked of one key.
type usage struct {
	asked   int64   // tokens, granted or not
	granted []int64 // when the answers came, in Unix nanoseconds, in ascending order; one token each
}

// takeWhile takes single tokens of keys of all algorithms at all nodes until the returned function is called. That returns the usage of each
// key. Checks may fail, as nodes may die.
func takeWhile(nodes []*process.Node) (stop func() map[string]*usage) {
	const keys, workersPerNode = 10, 2
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	used := map[string]*usage{}
	take := func(n *process.Node, algorithm, key string) {
		name := algorithm + " " + key
		mu.Lock()
		if used[name] == nil {
			used[name] = &usage{}
		}
		used[name].asked++
		mu.Unlock()
		resp, err := n.Client.Check(ctx, &weirv1.RateLimitRequest{IdentifierType: algorithm, Identifier: key})
		owned := resp.GetSource() == weirv1.Source_SOURCE_OWNER || resp.GetSource() == weirv1.Source_SOURCE_RELAYED
		mu.Lock()
		defer mu.Unlock()
		if err == nil && owned && resp.GetAllowed() {
			used[name].granted = append(used[name].granted, time.Now().UnixNano())
		}
	}
	for i, n := range nodes {
		for j := range workersPerNode {
			wg.Go(func() {
				pace := time.NewTicker(3 * time.Millisecond)
				defer pace.Stop()
				for k := i + 7*j; ctx.Err() == nil; k++ {
					take(n, yearly[k%len(yearly)], fmt.Sprint("key-", k/len(yearly)%keys))
					<-pace.C
				}
			})
		}
	}
	return func() map[string]*usage { cancel(); wg.Wait(); return used }
}

// snapshotsBegan returns when the earliest of the last snapshots of nodes was begun, in Unix nanoseconds.
func snapshotsBegan(t *testing.T, nodes ...*process.Node) int64 {
	t.Helper()
	earliest := int64(math.MaxInt64)
	for _, n := range nodes {
		err := snapshot.Load(n.DataDir(), func(h snapshot.Head) error {
			earliest = min(earliest, h.Time)
			return nil
		}, func(snapshot.Partition) error { return nil })
		if err != nil {
			t.Fatalf("snapshot of %s: %v", n.ID, err)
		}
	}
	return earliest
}

// Nodes that are all killed under load lose at most what they have granted since their last snapshots were begun, and count nothing twice.
func TestAKillOfAllNodesLosesOnlyWhatIsNewerThanSnapshots(t *testing.T) {
	t.Parallel()
	const limit = 10_000
	rules := strings.ReplaceAll(yearlyRules(), "limit: 100,", fmt.Sprintf("limit: %d,", limit))
	_, nodes := startThree(t, rules, "--peer-timeout", "4s", "--snapshot-every", "1s")
	began := float64(time.Now().UnixNano()) / 1e9
	stop := takeWhile(nodes)
	for _, n := range nodes { // of two seconds of load at least, and then some more
		process.Await(t, process.Patience, func() error {
			if at := n.Metric(t, "weir_snapshot_timestamp_seconds"); at < began+3 {
				return fmt.Errorf("the last snapshot of %s is from %v, the load has begun at %v", n.ID, at, began)
			}
			return nil
		})
	}
	pause(t, 400*time.Millisecond)
	for _, n := range nodes {
		n.Signal(syscall.SIGKILL)
	}
	for _, n := range nodes {
		n.Kill()
	}
	all := stop()
	due := snapshotsBegan(t, nodes...)
	startAgain(t, nodes...)
	var granted, before, after, lost int64
	for name, u := range all {
		algorithm, key, _ := strings.Cut(name, " ")
		peek := decide(t, nodes[0], &weirv1.RateLimitRequest{IdentifierType: algorithm, Identifier: key, Peek: true})
		used := limit - int64(peek.GetRemainingTokens()) - 1 // what is left if the token that is asked for is taken
		i, _ := slices.BinarySearch(u.granted, due)
		if used < int64(i) || used > u.asked {
			t.Errorf("%s: %d tokens are counted, %d were granted before the snapshots, %d in all, and %d were asked for", name, used, i, len(u.granted), u.asked)
		}
		granted += int64(len(u.granted))
		before += int64(i)
		after += int64(len(u.granted) - i)
		lost += max(0, int64(len(u.granted))-used)
	}
	t.Logf("%d keys: %d tokens granted, %d of them before the snapshots; %d lost", len(all), granted, before, lost)
	if before < 300 || after < 50 || lost > after {
		t.Errorf("%d tokens were granted before the snapshots and %d after, of which %d are lost", before, after, lost)
	}
}

// The snapshot of a running node has the counters that last for --snapshot-min-window, and the one at a stop has all.
func TestSnapshotMinWindow(t *testing.T) {
	t.Parallel()
	const short, long, limit = "50m", "365d", 100 // more than the default of 10m, and less than the option, also of two windows
	var rules strings.Builder
	rules.WriteString("domain: default\nrules:\n")
	for _, a := range yearly {
		for _, window := range []string{short, long} {
			fmt.Fprintf(&rules, "  - id: %[1]s-%[2]s\n    per: [%[1]s-%[2]s]\n    limits: [{limit: %[3]d, window: %[2]s, algorithm: %[1]s}]\n", a, window, limit)
		}
	}
	n := process.Start(t, "--rules", writeRules(t, rules.String()), "--snapshot-every", "1s", "--snapshot-min-window", "2h")
	ask := func(algorithm, window string, tokens int64) *weirv1.RateLimitResponse {
		return decide(t, n, &weirv1.RateLimitRequest{IdentifierType: algorithm + "-" + window, Identifier: "alice", TokensRequested: tokens})
	}
	for _, a := range yearly {
		ask(a, short, 50)
		ask(a, long, 50)
	}
	process.Await(t, process.Patience, func() error {
		if counters := n.Metric(t, "weir_snapshot_counters"); counters != float64(len(yearly)) {
			return fmt.Errorf("the snapshot has %v counters, want %d", counters, len(yearly))
		}
		return nil
	})
	n.Kill()
	n.Restart()
	for _, a := range yearly {
		if left := ask(a, short, 50).GetRemainingTokens(); left != limit-50 {
			t.Errorf("%s, a window of %s: %d tokens are left after 50, want %d after a kill", a, short, left, limit-50)
		}
		if left := ask(a, long, 20).GetRemainingTokens(); left != limit-50-20 {
			t.Errorf("%s, a window of %s: %d tokens are left after 20, want %d after a kill", a, long, left, limit-50-20)
		}
	}
	stopAll(t, n)
	n.Restart()
	for _, a := range yearly {
		if ask(a, short, 90).GetAllowed() && a != "fixed_window" { // whose window may have ended
			t.Errorf("%s, a window of %s: 90 tokens are left after a stop", a, short)
		}
		if left := ask(a, long, 20).GetRemainingTokens(); left != limit-50-20-20 {
			t.Errorf("%s, a window of %s: %d tokens are left after 20, want %d after a stop", a, long, left, limit-50-20-20)
		}
	}
}

func TestForgottenCounters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := process.Start(t, "--rules", writeRules(t, yearlyRules()), "--forget-counters", "--data-dir", dir)
	takeYearly(t, []*process.Node{n}, 50)
	stopAll(t, n)
	if _, err := os.Stat(snapshot.Path(dir)); !os.IsNotExist(err) {
		t.Errorf("there is a snapshot: %v", err)
	}
	n.Restart()
	if n := takeYearly(t, []*process.Node{n}, 100); n != yearlyKeys*6 {
		t.Errorf("%d keys have begun at zero", n)
	}
}

// A file that cannot be believed is renamed, the log says what to do, and the node counts from zero.
func TestSnapshotsThatAreSetAside(t *testing.T) {
	t.Parallel()
	foreign := func() string {
		dir := t.TempDir()
		n := process.Start(t, "--rules", writeRules(t, yearlyRules()), "--data-dir", dir)
		stopAll(t, n)
		return snapshot.Path(dir)
	}
	for _, tc := range []struct {
		name   string
		damage func(b []byte) []byte
		want   string
	}{
		{"torn", func(b []byte) []byte { return b[:len(b)-5] }, "it is torn"},
		{"damaged", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, "it is damaged: the checksum"}, // not a length, which says other things
		{"newer", func(b []byte) []byte { return append([]byte("weir snapshot 9"), b[len("weir snapshot 1"):]...) }, "a newer version of weir has written it"},
		{"empty", func([]byte) []byte { return nil }, "it is torn"},
		{"foreign", func([]byte) []byte {
			b, err := os.ReadFile(foreign())
			if err != nil {
				t.Fatal(err)
			}
			return b
		}, "it is of another cluster"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name != "damaged" {
				testform.NotInBrief(t)
			}
			dir := t.TempDir()
			n := process.Start(t, "--rules", writeRules(t, yearlyRules()), "--data-dir", dir)
			takeYearly(t, []*process.Node{n}, 50)
			stopAll(t, n)
			b, err := os.ReadFile(snapshot.Path(dir))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(snapshot.Path(dir), tc.damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			n.Restart()
			if log := n.Log(); !strings.Contains(log, "snapshot of the counters set aside") || !strings.Contains(log, tc.want) || !strings.Contains(log, `"todo"`) {
				t.Errorf("the log does not say that %s, and what to do", tc.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "counters.snapshot.bad")); err != nil {
				t.Error(err)
			}
			if n := takeYearly(t, []*process.Node{n}, 100); n != yearlyKeys*6 {
				t.Errorf("%d keys have begun at zero", n)
			}
		})
	}
}
