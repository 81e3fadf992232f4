package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

// importTimeout leaves the node time to write to etcd.
const importTimeout = 15 * time.Second

func (a *app) viewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "view COMMAND",
		Short: "Give a wiped etcd back what the nodes know",
		Args:  knownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.viewImportCommand())
	return cmd
}

func (a *app) viewImportCommand() *cobra.Command {
	q := nodeFlags{timeout: importTimeout}
	var yes bool
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Have a node write what it knows into a wiped etcd",
		Long: `Have a node write what it knows of the cluster into an etcd that was wiped, or restored
from an old backup: the parameters with the secret, the view, and the rules in force.
Until then checks go on, but nodes neither join nor leave, and rules do not change.

Without --yes the command only shows what would be written. If etcd has all that it
had, nothing is written.`,
		Example: `  weir view import --node 10.0.0.1:9090         show what would be written
  weir view import --node 10.0.0.1:9090 --yes   write it`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				response, err := c.ImportView(ctx, !yes)
				if err != nil {
					return err
				}
				return a.print(q.json, response, formatImport(response, yes))
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "write it; without this, only show what would be written")
	q.addTo(cmd)
	return cmd
}

func formatImport(response *weirv1.ImportViewResponse, done bool) string {
	rules := "none: the node has files of its own, or there are none"
	if revision := response.GetStoreRevision(); revision > 0 {
		rules = fmt.Sprintf("revision %d", revision)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "cluster  %s: %s\n", response.GetCluster(), response.GetReason())
	fmt.Fprintf(&out, "view     %d, members %s\n", response.GetView(), strings.Join(response.GetMembers(), ", "))
	fmt.Fprintf(&out, "rules    %s\n", rules)
	if done {
		out.WriteString("\nwritten\n")
	} else {
		out.WriteString("\nNothing is written yet: pass --yes to do so.\n")
	}
	return out.String()
}
