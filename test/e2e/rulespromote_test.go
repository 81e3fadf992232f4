package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const shadowRules = `domain: default
rules:
  - {id: wide, when: {endpoint: /wide}, per: [user], limits: [{limit: 1000000, window: 365d}], enforce: 0}
  - {id: tight, when: {endpoint: /tight}, per: [user], limits: [{limit: 2, window: 365d}], enforce: 0}
`

// promoting is a running weir rules promote.
type promoting struct {
	t      *testing.T
	lines  *bufio.Reader
	stderr *bytes.Buffer
	cmd    *exec.Cmd
}

func startPromoting(t *testing.T, n *process.Node, args ...string) *promoting {
	t.Helper()
	p := &promoting{t: t, stderr: new(bytes.Buffer)}
	p.cmd = exec.CommandContext(t.Context(), process.Binary(t), append([]string{"rules", "promote", "--node", n.GRPC}, args...)...)
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// until reads lines until one has that text.
func (p *promoting) until(text string) {
	p.t.Helper()
	for {
		line, err := p.lines.ReadString('\n')
		if err != nil {
			p.t.Fatalf("no line with %q: %v\n%s", text, err, p.stderr)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

// end waits for the end, and returns all that was printed after the last line that was read, and the exit code.
func (p *promoting) end() (out string, code int) {
	p.t.Helper()
	var text bytes.Buffer
	_, _ = p.lines.WriteTo(&text) // the code says more
	_ = p.cmd.Wait()
	return text.String() + p.stderr.String(), p.cmd.ProcessState.ExitCode()
}

// countsOfRule adds up what all nodes have counted of a rule.
func countsOfRule(t *testing.T, nodes []*process.Node, rule string) *weirv1.GetRuleCountsResponse {
	t.Helper()
	var sum weirv1.GetRuleCountsResponse
	for _, n := range nodes {
		one, err := n.Client.GetRuleCounts(t.Context(), "", rule)
		if err != nil {
			t.Fatal(err)
		}
		if one.GetNodeId() != n.ID || one.GetRevision() == 0 || one.GetLimitsPerCheck() != 1 {
			t.Errorf("%s says %v", n.ID, one)
		}
		sum.Allowed, sum.Denied, sum.WouldDeny = sum.Allowed+one.GetAllowed(), sum.Denied+one.GetDenied(), sum.WouldDeny+one.GetWouldDeny()
	}
	return &sum
}

// enforced returns the percentage that a node enforces of a rule.
func enforced(t *testing.T, n *process.Node, rule string) uint32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	r, err := n.Client.Config().GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Id: rule})
	if err != nil {
		t.Fatal(err)
	}
	if r.GetRule().Enforce == nil {
		return 100
	}
	return r.GetRule().GetEnforce()
}

// Three nodes count what a shadow would deny, each check once. A rule that denies much stays, one that begins to deny much goes back, and one
// that denies nothing is promoted to the end. A change by another caller and a node that does not answer stop a roll-out.
func TestPromoteOnACluster(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	_, nodes := startThreeWith(t, "--peer-timeout", "4s")
	apply(t, nodes[0], shadowRules)
	awaitRule := func(rule string) {
		t.Helper()
		process.Await(t, process.Patience, func() error {
			for _, n := range nodes {
				if _, err := n.Client.GetRuleCounts(t.Context(), "", rule); err != nil {
					return fmt.Errorf("%s: %w", n.ID, err)
				}
			}
			return nil
		})
	}
	awaitRule("tight")

	// Each of five users makes six checks, and has room for two.
	for i := range 30 {
		if resp := decide(t, nodes[i%3], &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: fmt.Sprint("u", i%5), Endpoint: "/tight"}); !resp.GetAllowed() {
			t.Fatal("a shadow denies")
		}
	}
	if sum := countsOfRule(t, nodes, "tight"); sum.GetAllowed() != 10 || sum.GetWouldDeny() != 20 || sum.GetDenied() != 0 {
		t.Errorf("nodes have counted %v", sum)
	}

	var rises atomic.Bool // checks of wide have no room
	ctx, stop := context.WithCancel(context.Background())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	for _, n := range nodes {
		load.Go(func() {
			pause := time.NewTicker(5 * time.Millisecond)
			defer pause.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-pause.C:
				}
				for _, endpoint := range []string{"/wide", "/tight"} {
					req := &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: fmt.Sprint("u", i%5), Endpoint: endpoint}
					if endpoint == "/wide" && rises.Load() {
						req.TokensRequested = 600_000 // of 1,000,000: there is room once
					}
					_, _ = n.Client.Check(ctx, req) // errors end nothing: one node is stopped at the end
				}
			}
		})
	}

	quick := []string{"--shorter-than-window", "--steps", "10,100", "--wait", "500ms", "--min-checks", "20", "--if-denied-below", "1%"}
	out, code := startPromoting(t, nodes[1], "tight", "--if-denied-below", "1%").end()
	if code != 2 || !strings.Contains(out, "--wait: 10m is less than the 8760h of a window of default/tight") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	out, code = startPromoting(t, nodes[1], append(quick, "tight")...).end()
	if code != 1 || !strings.Contains(out, "weir: default/tight stopped at 0%: ") || !strings.Contains(out, "which is not below 1%") || enforced(t, nodes[0], "tight") != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	out, code = startPromoting(t, nodes[1], append(quick, "--dry-run", "wide")...).end()
	if code != 0 || !strings.Contains(out, "nothing is stored: default/wide would move on to 10%") || enforced(t, nodes[0], "wide") != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	p := startPromoting(t, nodes[1], append(quick, "wide")...)
	p.until("enforce is 10% now, revision 2\n")
	rises.Store(true)
	out, code = p.end()
	if code != 1 || !strings.Contains(out, "enforce is 0% now, revision 3\n") || !strings.Contains(out, "weir: default/wide went back from 10% to 0%: ") ||
		enforced(t, nodes[0], "wide") != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	rises.Store(false)
	out, code = startPromoting(t, nodes[1], append(quick, "default/wide")...).end()
	if code != 0 || !strings.Contains(out, "enforce is 10% now, revision 4\n") || !strings.HasSuffix(out, "default/wide has reached 100%\n") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	for _, n := range nodes {
		if got := enforced(t, n, "wide"); got != 100 {
			t.Errorf("%s enforces %d%%", n.ID, got)
		}
	}

	apply(t, nodes[0], strings.Replace(shadowRules, "limit: 2,", "limit: 1000000,", 1)) // wide is a shadow again
	p = startPromoting(t, nodes[1], "tight", "--shorter-than-window", "--wait", "8s", "--if-denied-below", "1%", "--json")
	p.until(`"event":"plan"`)
	apply(t, nodes[2], strings.Replace(shadowRules, "limit: 2,", "limit: 1000001,", 1))
	if out, code := p.end(); code != 1 || !strings.Contains(out, `"event":"stopped"`) || !strings.Contains(out, "another caller has changed the rule") {
		t.Errorf("exit code %d\n%s", code, out)
	}

	awaitRule("wide")
	p = startPromoting(t, nodes[0], "wide", "--shorter-than-window", "--wait", "3s", "--if-denied-below", "1%", "--timeout", "1s")
	p.until("without room (")
	nodes[2].Signal(syscall.SIGSTOP)
	defer nodes[2].Signal(syscall.SIGCONT)
	if out, code := p.end(); code != 1 || !strings.Contains(out, nodes[2].ID+" does not answer") || enforced(t, nodes[0], "wide") != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
