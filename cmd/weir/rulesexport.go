package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/client"
)

// maxWatchMessage is far above what a node sends at once, 1 MiB and one rule.
const maxWatchMessage = 16 << 20

func (a *app) exportCommand() *cobra.Command {
	var q nodeFlags
	var domain, output string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the rules as a file",
		Long:  `Write the rules that a node runs as a file that "weir rules apply" reads.`,
		Example: `  weir rules export
  weir rules export --domain shop -o shop.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && q.json {
				return usageError(cmd, "--output writes a file of rules, --json prints JSON; leave one of them out")
			}
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				state, err := readRules(ctx, c, domain)
				if err != nil {
					return err
				}
				if domain != "" && len(state.GetRateLimits()) == 0 {
					return fmt.Errorf("domain %q has no rules", domain)
				}
				text, err := formatFile(state)
				if err != nil {
					return err
				}
				if output != "" {
					return os.WriteFile(output, []byte(text), 0o644)
				}
				return a.print(q.json, state, text)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to `FILE` (default standard output)")
	cmd.Flags().StringVar(&domain, "domain", "", "only the rules of this `NAMESPACE` (default all)")
	q.addTo(cmd)
	return cmd
}
