package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/sizing"
)

func (a *app) sizeCommand() *cobra.Command {
	var checks string
	var l sizing.Load
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "size --checks RATE --keys N",
		Short: "Compute what a cluster needs for its load",
		Long: `Compute how many nodes a load needs, their processors, memory and disk, what is left when one of them is gone, and the
size of etcd. No node is asked: the costs are those that docs/performance.md has of one machine. Measure yours with weir bench.

Nodes are added until the others have processors enough when one is gone: they use 80 % of them at most. Shares of the
counters are as uneven as they may be. The processors are those of a cluster in which few checks travel together
between nodes; with many callers per node it is less, which the second figure says.

The exit code is 0 if the nodes are enough, 1 if --nodes says too few, and 2 on an error.`,
		Example: `  weir size --checks 1e6/s --keys 1e8
  weir size --checks 1e6/s --keys 1e8 --batch 0.9 --cores 16
  weir size --checks 20000/s --keys 1e6 --nodes 3 --cores 2 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for flag, such := range map[string]string{"checks": "1e6/s", "keys": "1e8"} {
				if !cmd.Flags().Changed(flag) {
					return usageError(cmd, "--%s: must be given, such as %s", flag, such)
				}
			}
			var err error
			if l.Checks, err = strconv.ParseFloat(strings.TrimSuffix(checks, "/s"), 64); err != nil {
				return usageError(cmd, "--checks: %q is not a number per second, such as 1e6/s", checks)
			}
			plan, err := sizing.For(l)
			if problem, ok := errors.AsType[*sizing.Problem](err); ok {
				return usageError(cmd, "--%s: %s", problem.Field, problem.Reason)
			}
			if err := a.printReport(asJSON, plan, formatPlan(plan)); err != nil {
				return err
			}
			if !plan.Enough {
				return &exitError{code: 1}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&checks, "checks", "", "`RATE` of checks of the whole cluster at its busiest, such as 1e6/s")
	flags.Float64Var(&l.Keys, "keys", 0, "`N` counters in use at once: one per limit and subject, until it is empty again")
	flags.Float64Var(&l.Batched, "batch", 0, "`SHARE` of the checks that come in batches of about 100, 0 to 1")
	flags.IntVar(&l.Cores, "cores", 8, "`N` processors of a node, 1 to 1024")
	flags.IntVar(&l.Nodes, "nodes", 0, fmt.Sprintf("`N` nodes, 1 to %d (default as few as can do it, and 3 at least)", sizing.MostNodes()))
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func formatPlan(p sizing.Plan) string {
	var out strings.Builder
	gib := func(bytes int64) string { return fmt.Sprintf("%.1fGiB", float64(bytes)/(1<<30)) }
	t := newTable(&out, "nodes", fmt.Sprintf("%d of %d processors", p.Nodes, p.Cores))
	t.row("processors", fmt.Sprintf("%.1f of %d used (%.0f %%); %.1f if many checks travel together between nodes", p.CoresUsed, p.Nodes*p.Cores, 100*p.Busy, p.CoresUsedBusy))
	switch {
	case p.Nodes == 1:
		t.row("without a node", "no node decides: take three for a standby that stays")
	case p.Enough:
		t.row("without a node", fmt.Sprintf("the others use %.0f %% of their processors", 100*p.BusyAfterLoss))
	default:
		t.row("without a node", fmt.Sprintf("the others would use %.0f %% of their processors: too few nodes", 100*p.BusyAfterLoss))
	}
	t.row("memory of a node", fmt.Sprintf("%s, of which --counter-memory %dMiB for %d counters and %d copies", gib(p.Memory), p.CounterMemory>>20, p.Counters, p.Copies))
	t.row("disk of a node", fmt.Sprintf("%s, for two snapshots of %s", gib(p.Disk), gib(p.Snapshot)))
	t.row("start and stop", fmt.Sprintf("%.1fs and %.1fs longer with these counters", p.StartSeconds, p.StopSeconds))
	t.row("etcd", fmt.Sprintf("at most %s at a time, and what it keeps of earlier revisions", formatMiB(p.Etcd)))
	t.flush()
	return out.String()
}
