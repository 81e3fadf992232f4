package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

// Bounds and defaults of weir rules promote.
const (
	defaultPromoteWait = 10 * time.Minute
	leastPromoteWait   = 100 * time.Millisecond
	mostPromoteWait    = 7 * 24 * time.Hour
	maxPromoteSteps    = 100
	// checksByShare divided by a share is how many checks without a denial say at 95 % that the share is below it: E. Louis,
	// "Confidence intervals for a binomial parameter after observing no successes", The American Statistician 35 (1981).
	checksByShare = 3
)

// defaultSteps are the percentages of --steps.
var defaultSteps = []int64{1, 10, 50, 100}

// promoteFlags are the flags of weir rules promote.
type promoteFlags struct {
	nodeFlags
	domain    string
	below     string
	steps     []int64
	wait      time.Duration
	shorter   bool
	minChecks int64
	stay      bool
	dryRun    bool
}

func (a *app) promoteCommand() *cobra.Command {
	f := promoteFlags{nodeFlags: nodeFlags{timeout: defaultApplyTimeout}}
	cmd := &cobra.Command{
		Use:   "promote [DOMAIN/]ID --if-denied-below SHARE",
		Short: "Enforce a rule step by step while it denies little",
		Long: `Raise enforce of a rule by the steps of --steps, each after --wait in which less than the given
share of the checks of all nodes had no room. That counts denials as well as those that enforce keeps
from denying. Steps that the rule has reached already are left out, so a plan that has stopped goes on
if it is started again.

Callers reach a limit by the end of its window. So --wait is to be as long as the longest window of the
rule, also one of the calendar, or as a full token bucket takes to refill. If a rule has counted for
that long already, --shorter-than-window permits less.

It stops if too many checks had no room, before --wait is over if they are far too many. Then enforce goes
back to what it was when the command was started, or stays where it is with --stay.

It stops, and leaves enforce where it is, if
  - there were fewer than --min-checks checks,
  - another caller changed the rule,
  - a node does not answer, or does not run the rule, for --timeout.

Of a rule with several limits or several sets in per, the share is an upper bound: nodes count each
limit of a check.

The exit code is 0 if the rule has reached the last step, 1 if the command has stopped, and 2 on an
error. With --dry-run it watches once and changes nothing; the code is 1 if it would have stopped.
Rules that nodes have from files cannot be changed. It needs the role rules of the domain.`,
		Example: `  weir rules promote new-limit --if-denied-below 0.1%
  weir rules promote shop/new-limit --if-denied-below 0.5% --steps 5,25,100 --wait 1h
  weir rules promote daily-quota --if-denied-below 0.1% --wait 1h --shorter-than-window
  weir rules promote new-limit --if-denied-below 0.1% --wait 1m --dry-run`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error { return a.promote(cmd, &f, args[0]) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.below, "if-denied-below", "", "move on if less than this `SHARE` of the checks had no room, such as 0.1%; required")
	flags.Int64SliceVar(&f.steps, "steps", defaultSteps, "`PERCENTAGES` of counters to enforce, rising, 1 to 100")
	flags.DurationVar(&f.wait, "wait", defaultPromoteWait, "watch the checks for `DURATION` before each step")
	flags.BoolVar(&f.shorter, "shorter-than-window", false, "let --wait be shorter than the longest window of the rule")
	flags.Int64Var(&f.minChecks, "min-checks", 0, "stop if there were fewer than `NUMBER` checks (default 3 divided by the share, so 3000 for 0.1%)")
	flags.BoolVar(&f.stay, "stay", false, "if too many checks had no room, leave enforce where it is")
	flags.BoolVar(&f.dryRun, "dry-run", false, "watch once, say what would come of it, and change nothing")
	addDomain(cmd, &f.domain)
	f.addTo(cmd)
	return cmd
}

// plan is what the flags say, checked.
type plan struct {
	name      ruleName
	below     float64 // above 0, at most 1
	steps     []int64 // rising, 1 to 100
	wait      time.Duration
	shorter   bool // wait may be shorter than a window of the rule
	minChecks uint64
	patience  time.Duration // with nodes that do not answer
	stay      bool          // where it is if too many checks had no room
	dryRun    bool
}

// plan returns the plan of the flags.
func (f *promoteFlags) plan(cmd *cobra.Command) (p plan, err error) {
	text, isPercent := strings.CutSuffix(f.below, "%")
	percent, parseErr := strconv.ParseFloat(text, 64)
	switch {
	case f.below == "":
		return p, usageError(cmd, "--if-denied-below is missing: name a share of the checks, such as 0.1%%")
	case !isPercent || parseErr != nil || !(percent > 0 && percent <= 100):
		return p, usageError(cmd, "--if-denied-below: %q is not a share above 0%% and up to 100%%, such as 0.1%%", f.below)
	case f.wait < leastPromoteWait || f.wait > mostPromoteWait:
		return p, usageError(cmd, "--wait: %v is not between %v and %v", f.wait, leastPromoteWait, mostPromoteWait)
	case f.minChecks < 0:
		return p, usageError(cmd, "--min-checks: %d is below 0", f.minChecks)
	case len(f.steps) == 0 || len(f.steps) > maxPromoteSteps:
		return p, usageError(cmd, "--steps: %d steps are not between 1 and %d", len(f.steps), maxPromoteSteps)
	}
	for i, s := range f.steps {
		if s < 1 || s > 100 || i > 0 && s <= f.steps[i-1] {
			return p, usageError(cmd, "--steps: %d is not between %d and 100, as steps rise", s, 1+slices.Max(append([]int64{0}, f.steps[:i]...)))
		}
	}
	p = plan{below: percent / 100, steps: f.steps, wait: f.wait, shorter: f.shorter, minChecks: uint64(f.minChecks), patience: f.timeout, stay: f.stay, dryRun: f.dryRun}
	if f.minChecks == 0 {
		p.minChecks = uint64(math.Ceil(100*checksByShare/percent - 1e-9)) // which is for 0.1, a little above itself
	}
	return p, nil
}

func (a *app) promote(cmd *cobra.Command, f *promoteFlags, id string) error {
	p, err := f.plan(cmd)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if f.timeout > 0 { // else ask refuses it
		f.timeout = math.MaxInt64 // of all calls; each has its own
	}
	cmd.SetContext(ctx)
	var stopped *stopError
	err = a.ask(cmd, &f.nodeFlags, func(ctx context.Context, c *client.Node) error {
		f.timeout = p.patience // for errors
		name, err := ruleName{f.domain, id}.resolveWithin(ctx, c, p.patience)
		if err != nil {
			return err
		}
		p.name = name
		nodes := &askedCluster{nodeFlags: &f.nodeFlags, asked: c, name: name, conns: make(map[string]*client.Node)}
		defer nodes.close()
		err = (&rollout{plan: p, cluster: nodes, report: a.rolloutReport(f.json)}).run(ctx)
		if e, ok := errors.AsType[*stopError](err); ok {
			stopped = e
			return nil
		}
		return err
	})
	if err == nil && stopped != nil {
		return &exitError{code: 1, err: stopped}
	}
	return err
}

// resolveWithin is resolve with a bound for the time.
func (n ruleName) resolveWithin(ctx context.Context, c *client.Node, timeout time.Duration) (ruleName, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return n.resolve(ctx, c)
}

// askedCluster asks the nodes of a cluster about one rule. It is for one caller at a time, except counts.
type askedCluster struct {
	*nodeFlags
	asked *client.Node
	name  ruleName

	mu    sync.Mutex
	conns map[string]*client.Node // by address; guarded by mu
}

// maxConns is how many nodes are kept connected. Addresses change as nodes come and go.
const maxConns = 4096

func (c *askedCluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close() // all is said by then
	}
	clear(c.conns)
}

func (c *askedCluster) rule(ctx context.Context) (*weirv1.RateLimit, error) {
	return c.asked.Config().GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Domain: c.name.domain, Id: c.name.id})
}

func (c *askedCluster) update(ctx context.Context, rule *weirv1.RateLimit) (*weirv1.RateLimit, error) {
	return c.asked.Config().UpdateRateLimit(ctx, &weirv1.UpdateRateLimitRequest{RateLimit: rule})
}

func (c *askedCluster) nodes(ctx context.Context) ([]*weirv1.Node, error) {
	resp, err := c.asked.ListNodes(ctx)
	return resp.GetNodes(), err
}

func (c *askedCluster) counts(ctx context.Context, n *weirv1.Node) (*weirv1.GetRuleCountsResponse, error) {
	conn, err := c.connTo(n.GetAddress())
	if err != nil {
		return nil, err
	}
	counts, err := conn.GetRuleCounts(ctx, c.name.domain, c.name.id)
	if err == nil && counts.GetNodeId() != n.GetId() {
		err = fmt.Errorf("node %s answers at %s, the address of %s", counts.GetNodeId(), n.GetAddress(), n.GetId())
	}
	return counts, err
}

// connTo returns a connection to an address, which close ends.
func (c *askedCluster) connTo(address string) (*client.Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.conns[address]; conn != nil {
		return conn, nil
	}
	if len(c.conns) == maxConns {
		return nil, fmt.Errorf("there have been %d addresses of nodes, which is the most", maxConns)
	}
	conn, err := c.connect(address)
	if err != nil {
		return nil, err
	}
	c.conns[address] = conn
	return conn, nil
}
