package main

import (
	"github.com/spf13/cobra"
)

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench COMMAND",
		Short: "Make load, and measure what a check costs",
		Long: `Make load, and measure what a check costs: on nodes, in the counters of a node alone, and
on a server that decides nothing.`,
		Example: `  weir bench grpc --callers 64             as fast as a node answers
  weir bench grpc --rate 5000 --json       5000 checks per second, at a fixed rate
  weir bench grpc --baseline node --server-pid "$(pgrep -d, -x weir)"
                                           compared with a server that decides nothing
  weir bench grpc --via leases             as users of the Go client ask
  weir bench engine --keys 1000000         the counters of a node, without a network
  weir bench expiry                        does memory come back?
  weir bench cardinality --budget 64       does a flood of keys stay within its budget?`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.benchGRPCCommand(), a.benchEngineCommand(), a.benchExpiryCommand(), a.benchCardinalityCommand(), a.benchBaselineCommand())
	return cmd
}
