package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/api"
	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/rules"
)

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
