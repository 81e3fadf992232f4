package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir/api"
	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/rules"
)

// maxWatchMessage is far above what a node sends at once, 1 MiB and one rule.
const maxWatchMessage = 16 << 20

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
		state.Revision, state.RuleRevision, state.Complete = part.GetRevision(), part.GetRuleRevision(), part.GetComplete()
		state.RateLimits = append(state.RateLimits, part.GetRateLimits()...)
		state.DescriptorFiles = append(state.DescriptorFiles, part.GetDescriptorFiles()...)
	}
	return state, nil
}

func (a *app) getCommand() *cobra.Command {
	var q nodeFlags
	var domain string
	cmd := &cobra.Command{
		Use:   "get [DOMAIN/]ID",
		Short: "Show one rule",
		Long:  `Show one rule as a node runs it, in the form that "weir rules apply" reads.`,
		Example: `  weir rules get posts-per-user
  weir rules get shop/posts-per-user
  weir rules get posts-per-user --domain shop --json`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				name, err := ruleName{domain, args[0]}.resolve(ctx, c)
				if err != nil {
					return err
				}
				response, err := c.Config().GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Domain: name.domain, Id: name.id})
				if err != nil {
					return err
				}
				if descriptor := response.GetRule().GetDescriptorYaml(); descriptor != "" {
					return a.print(q.json, response, descriptor)
				}
				text, err := rules.Format(api.Documents([]*weirv1.RateLimit{response}))
				if err != nil {
					return err
				}
				return a.print(q.json, response, string(text))
			})
		},
	}
	addDomain(cmd, &domain)
	q.addTo(cmd)
	return cmd
}

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
