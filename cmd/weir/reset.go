package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

func (a *app) resetCommand() *cobra.Command {
	var q nodeFlags
	var domain, rule string
	var d descriptors
	cmd := &cobra.Command{
		Use:   "reset KEY=VALUE...",
		Short: "Reset an identifier's counters",
		Long: `Reset the counters of an identifier, or those of one rule. The first KEY=VALUE is the
identifier. Further attributes find the counters of rules that count by several. A rule
with one counter for all requests needs no KEY=VALUE.`,
		Example: `  weir reset user=alice
  weir reset user=alice --rule posts-per-user
  weir reset user=alice --rule shop/posts-per-user
  weir reset --rule all-logins
  weir reset --domain edge --descriptor user=bob,path=/x`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.given() {
				return a.resetDescriptors(cmd, &q, &d, args, domain, rule)
			}
			request, err := parseRequest(args)
			if errors.Is(err, errNobody) && len(args) == 0 && rule != "" {
				request, err = &weirv1.RateLimitRequest{}, nil
			}
			if err != nil {
				return usageError(cmd, "%w", err)
			}
			attributes := request.GetAttributes()
			if request.GetEndpoint() != "" {
				return usageError(cmd, "endpoint: counters of all endpoints are reset; to reset those of one rule only, name it with --rule")
			}
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				name, err := ruleName{domain, rule}.resolve(ctx, c)
				if err != nil {
					return err
				}
				response, err := c.Reset(ctx, &weirv1.ResetRateLimitRequest{
					Identifier: request.GetIdentifier(), IdentifierType: request.GetIdentifierType(),
					Attributes: attributes, Domain: name.domain, RuleId: name.id,
				})
				if err != nil {
					return err
				}
				return a.print(q.json, response, formatResetAnswer(response))
			})
		},
	}
	cmd.Flags().StringVar(&rule, "rule", "", "reset only the counters of the rule `[DOMAIN/]ID`")
	addDomain(cmd, &domain)
	d.addTo(cmd)
	q.addTo(cmd)
	return cmd
}

func formatResetAnswer(response *weirv1.ResetRateLimitResponse) string {
	if len(response.GetLimits()) == 0 {
		return "no rule counts by this identifier\n"
	}
	var out strings.Builder
	writeLimits(&out, response.GetLimits())
	if n := len(response.GetLimits()); n == 1 {
		out.WriteString("\n1 counter was reset\n")
	} else {
		fmt.Fprintf(&out, "\n%d counters were reset\n", n)
	}
	return out.String()
}
