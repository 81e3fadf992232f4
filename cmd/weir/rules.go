package main

import (
	"github.com/spf13/cobra"
)

func (a *app) rulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules COMMAND",
		Short: "Read and change the rules of the cluster",
		Long: `Read and change the rules of the cluster. They are stored in etcd, and every node runs
a change within a second. Nodes that were started with --rules have rules of their own.`,
		Example: `  weir rules apply -f rules.yaml   change the rules
  weir rules diff -f rules.yaml    show what that would change
  weir rules export                write the rules as a file`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.applyCommand(), a.diffCommand(), a.lintCommand(), a.listCommand(), a.getCommand(), a.deleteCommand(), a.promoteCommand(), a.exportCommand())
	return cmd
}

func oneID(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return usageError(cmd, "%s takes the id of one rule, but got %d arguments", cmd.Name(), len(args))
}
