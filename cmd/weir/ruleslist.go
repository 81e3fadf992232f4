package main

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

func (a *app) listCommand() *cobra.Command {
	var q nodeFlags
	var domain string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the rules",
		Long:  `List the rules that a node runs, in their order.`,
		Example: `  weir rules list
  weir rules list --domain shop --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				state, err := readRules(ctx, c, domain)
				if err != nil {
					return err
				}
				return a.print(q.json, state, formatRuleTable(state))
			})
		},
	}
	cmd.Flags().StringVar(&domain, "domain", "", "only the rules of this `NAMESPACE` (default all)")
	q.addTo(cmd)
	return cmd
}

// readRules returns all rules that a node runs, of one moment and in their order.
func readRules(ctx context.Context, c *client.Node, domain string) (*weirv1.WatchRulesResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watch
	stream, err := c.Config().WatchRules(ctx, &weirv1.WatchRulesRequest{Domain: domain}, grpc.MaxCallRecvMsgSize(maxWatchMessage))
	if err != nil {
		return nil, err
	}
	state := &weirv1.WatchRulesResponse{}
	for !state.GetComplete() {
		part, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		state.Revision, state.RulesHash, state.Complete = part.GetRevision(), part.GetRulesHash(), part.GetComplete()
		state.RateLimits = append(state.RateLimits, part.GetRateLimits()...)
		state.DescriptorFiles = append(state.DescriptorFiles, part.GetDescriptorFiles()...)
	}
	return state, nil
}
