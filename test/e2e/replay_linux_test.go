package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/internal/backtest"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/test/process"
)

const clusterReplayRules = `
domain: default
rules:
  - {id: allow, when: {endpoint: /allow}, per: [user], limits: [{limit: 12, window: {calendar: year}, algorithm: fixed_window}]}
  - {id: local, when: {endpoint: /local}, per: [user], on_failure: local, limits: [{limit: 12, window: {calendar: year}, algorithm: fixed_window}]}
  - {id: deny, when: {endpoint: /deny}, per: [user], on_failure: deny, limits: [{limit: 12, window: {calendar: year}, algorithm: fixed_window}]}
  - {id: hot, when: {endpoint: /hot}, per: [user], limits: [{limit: 500, window: {calendar: year}, algorithm: fixed_window}]}
`

// loggedLines returns the lines of decision logs in the order of their times, once there are at least that many.
func loggedLines(t *testing.T, least int, paths ...string) (lines []decisionlog.Line, log []byte) {
	t.Helper()
	var texts [][]byte
	process.Await(t, process.Patience, func() error {
		texts = nil
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			texts = append(texts, bytes.SplitAfter(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))...)
		}
		if len(texts) < least {
			return fmt.Errorf("%d lines of %d", len(texts), least)
		}
		return nil
	})
	type line struct {
		decisionlog.Line
		text []byte
	}
	all := make([]line, len(texts))
	for i, text := range texts {
		all[i].text = append(bytes.TrimSuffix(text, []byte("\n")), '\n')
		if err := json.Unmarshal(text, &all[i].Line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.Time.UnixNano(), b.Time.UnixNano()) })
	for _, l := range all {
		lines, log = append(lines, l.Line), append(log, l.text...)
	}
	return lines, log
}

func replayed(t *testing.T, log []byte) *backtest.Result {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(clusterReplayRules))
	if err != nil {
		t.Fatal(err)
	}
	run, err := backtest.New(backtest.Config{Rules: set, Format: backtest.Decisions})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Read("decisions.log", bytes.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	return run.Result()
}

// A replay decides the lines of a cluster as its nodes have, although owners were not reached: by the failure policy and by the asked
// node's share. Lines that it may decide in another way, after tokens were lent to nodes or a standby has decided, are counted as such,
// and no other line differs.
func TestDecisionLogsOfAClusterAreReplayed(t *testing.T) {
	testform.NotInBrief(t)
	etcd, file, dir := process.StartEtcd(t), writeRules(t, clusterReplayRules), t.TempDir()
	nodes := make([]*process.Node, 3)
	paths := make([]string, 3)
	var starting sync.WaitGroup
	for i := range nodes {
		paths[i] = filepath.Join(dir, fmt.Sprint(i, ".log"))
		starting.Go(func() {
			nodes[i] = process.Start(t, "--etcd", etcd.Endpoint, "--rules", file,
				"--decision-log", paths[i], "--decision-log-which", "all", "--decision-log-keys", "clear")
		})
	}
	starting.Wait()
	process.AwaitMembers(t, process.Patience, nodes...)
	process.AwaitSettled(t, process.Patience, nodes...)
	var answered atomic.Int64 // a late node refuses checks, which are not in the log
	check := func(n *process.Node, name, endpoint string) {
		req := user(name)
		req.Endpoint = endpoint
		if _, err := n.Client.Check(t.Context(), req); err == nil {
			answered.Add(1)
		}
	}
	ask := func(n *process.Node, users, each int) {
		for range each {
			for i := range users {
				for _, endpoint := range []string{"/allow", "/local", "/deny"} {
					check(n, fmt.Sprint("u", i), endpoint)
				}
			}
		}
	}
	const users = 24
	ask(nodes[0], users, 3)
	has := func(which func(decisionlog.Line) bool) bool {
		lines, _ := loggedLines(t, int(answered.Load()), paths[:2]...)
		return slices.ContainsFunc(lines, which)
	}

	// Two nodes are asked for the same few keys so often that they are lent tokens.
	lent := func(l decisionlog.Line) bool { return l.Source == "lent" }
	for round := 0; round == 0 || !has(lent); round++ {
		var calling sync.WaitGroup
		for caller := range 24 {
			calling.Go(func() {
				for range 100 {
					check(nodes[caller%2], fmt.Sprint("hot", round, "-", caller/2%3), "/hot")
				}
			})
		}
		calling.Wait()
	}
	// An owner stops: its standbys decide. Then only the asked node is left.
	nodes[2].Signal(syscall.SIGSTOP)
	ask(nodes[0], users, 3)
	nodes[1].Signal(syscall.SIGSTOP)
	denied := func(l decisionlog.Line) bool { return l.Source == "local" && !l.Allowed }
	for round := 0; round == 0 || !has(denied); round++ { // until it has used up its share of a limit
		ask(nodes[0], users, 6)
	}

	lines, log := loggedLines(t, int(answered.Load()), paths[:2]...)
	res := replayed(t, log)
	t.Logf("sources %v, differing %v, inexact %v, skipped %v", res.Sources, res.Differing, res.Inexact, res.Skipped)
	for _, source := range []string{"owner", "lent", "provisional", "local", "fail_open", "fail_closed"} {
		if res.Sources[source] == 0 {
			t.Errorf("no line has the source %s: it tries too little", source)
		}
	}
	if int(res.Lines) != len(lines) || res.Allowed+res.Denied+res.Skipped["not_decided"] != res.Lines {
		t.Errorf("%d lines of %d, %d allowed, %d denied, skipped %v", res.Lines, len(lines), res.Allowed, res.Denied, res.Skipped)
	}
	if res.Unexplained != 0 || res.Differing["local"]+res.Differing["fail_open"]+res.Differing["fail_closed"] != 0 {
		t.Errorf("%d lines differ without a reason; differing %v, inexact %v", res.Unexplained, res.Differing, res.Inexact)
	}
	if inexact := res.Inexact["lent"] + res.Inexact["provisional"]; inexact == 0 || inexact > res.Lines-int64(users)*3*3 {
		t.Errorf("%d of %d lines are inexact: %v", inexact, res.Lines, res.Inexact)
	}
	differing := int64(0)
	for _, n := range res.Differing {
		differing += n
	}
	if differing > res.Lines/50 {
		t.Errorf("%d of %d lines differ: %v", differing, res.Lines, res.Differing)
	}
	// With another share of the limit, the replay decides otherwise: the comparison can fail.
	other := strings.ReplaceAll(strings.ReplaceAll(string(log), `"shares":3`, `"shares":1`), `"shares":2`, `"shares":1`)
	if res := replayed(t, []byte(other)); res.Differing["local"] == 0 {
		t.Errorf("another share decides alike: %v", res.Differing)
	}
}
