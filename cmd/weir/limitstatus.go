package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

func (a *app) statusCommand() *cobra.Command {
	var q nodeFlags
	var domain string
	var d descriptors
	cmd := &cobra.Command{
		Use:   "status KEY=VALUE...",
		Short: "Show what an identifier has used of all its limits",
		Long: `Show what an identifier has used of all its limits. Nothing is counted. The first
KEY=VALUE is the identifier. An endpoint and further attributes narrow the rules down,
and find the counters of rules that count by several attributes.`,
		Example: `  weir status user=alice
  weir status ip=10.0.0.1 endpoint=/login --json
  weir status --domain edge --descriptor user=bob,path=/x`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.given() {
				return a.descriptorsStatus(cmd, &q, &d, args, domain)
			}
			request, err := parseRequest(args)
			if err != nil {
				return usageError(cmd, "%w", err)
			}
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				response, err := c.Status(ctx, &weirv1.RateLimitStatusRequest{
					Identifier: request.GetIdentifier(), IdentifierType: request.GetIdentifierType(),
					Endpoint: request.GetEndpoint(), Attributes: request.GetAttributes(), Domain: domain,
				})
				if err != nil {
					return err
				}
				return a.print(q.json, response, formatStatus(response))
			})
		},
	}
	addDomain(cmd, &domain)
	d.addTo(cmd)
	q.addTo(cmd)
	return cmd
}

func formatStatus(response *weirv1.RateLimitStatusResponse) string {
	if len(response.GetLimits()) == 0 {
		return "no rule counts by this identifier\n"
	}
	var out strings.Builder
	writeLimits(&out, response.GetLimits())
	writeOmitted(&out, response.GetOmitted(), "counters")
	return out.String()
}
