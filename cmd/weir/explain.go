package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

func (a *app) explainCommand() *cobra.Command {
	var q nodeFlags
	var domain string
	var cost int64
	var d descriptors
	cmd := &cobra.Command{
		Use:   "explain KEY=VALUE...",
		Short: "Show how a request would be decided, and why",
		Long: `Show how a request would be decided now, and why: which rules match and which do not,
and what their counters hold. Nothing is counted. The request is written as for
"weir check".

The exit code is 0 for either decision, and 2 if there is no answer.`,
		Example: `  weir explain user=alice endpoint=/api/v1/posts
  weir explain ip=10.0.0.1 method=POST --cost 5 --json
  weir explain --domain edge --descriptor user=bob,path=/x`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.given() {
				return a.explainDescriptors(cmd, &q, &d, args, domain, cost)
			}
			request, err := parseRequest(args)
			if err != nil {
				return usageError(cmd, "%w", err)
			}
			if err := checkCost(cmd, cost); err != nil {
				return err
			}
			request.TokensRequested, request.Domain, request.Peek = cost, domain, true
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				response, err := c.Explain(ctx, request)
				if err != nil {
					return err
				}
				return a.print(q.json, response, formatExplanation(request, response))
			})
		},
	}
	addCost(cmd, &cost)
	addDomain(cmd, &domain)
	d.addTo(cmd)
	q.addTo(cmd)
	return cmd
}

func formatExplanation(request *weirv1.RateLimitRequest, response *weirv1.ExplainRateLimitResponse) string {
	var out strings.Builder
	out.WriteString(formatDecision(request, response.GetDecision()))
	if len(response.GetRules()) == 0 {
		fmt.Fprintf(&out, "\ndomain %q has no rules\n", cmp.Or(request.GetDomain(), "default"))
		return out.String()
	}
	out.WriteString("\n")
	table := newTable(&out, "RULE", "APPLIES", "WHY")
	var limits []*weirv1.LimitStatus
	for _, r := range response.GetRules() {
		table.row(r.GetRuleId(), yesNo(r.GetApplies()), orDash(r.GetReason()))
		limits = append(limits, r.GetLimits()...)
	}
	table.flush()
	writeOmitted(&out, response.GetOmitted(), "rules that do not match")
	if len(limits) > 0 {
		out.WriteString("\n")
		writeLimits(&out, limits)
	}
	return out.String()
}
