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

func (a *app) explainCommand() *cobra.Command {
	var q asking
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

func (a *app) statusCommand() *cobra.Command {
	var q asking
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

func (a *app) resetCommand() *cobra.Command {
	var q asking
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
				return a.print(q.json, response, formatReset(response))
			})
		},
	}
	cmd.Flags().StringVar(&rule, "rule", "", "reset only the counters of the rule `[DOMAIN/]ID`")
	addDomain(cmd, &domain)
	d.addTo(cmd)
	q.addTo(cmd)
	return cmd
}

func addDomain(cmd *cobra.Command, domain *string) {
	cmd.Flags().StringVar(domain, "domain", "", "`NAMESPACE` of the rules (default \"default\")")
}

func addCost(cmd *cobra.Command, cost *int64) {
	cmd.Flags().Int64Var(cost, "cost", 1, "count the request as `N` tokens; below 0 gives tokens back")
}

func checkCost(cmd *cobra.Command, cost int64) error {
	if cost == 0 || cost < -maxCost || cost > maxCost {
		return usageError(cmd, "--cost: %d is not between 1 and %d, or below 0 to give tokens back; to look and count nothing pass --peek", cost, maxCost)
	}
	return nil
}

func formatExplanation(request *weirv1.RateLimitRequest, response *weirv1.ExplainRateLimitResponse) string {
	var out strings.Builder
	out.WriteString(formatDecision(request, response.GetDecision()))
	if len(response.GetRules()) == 0 {
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

func formatStatus(response *weirv1.RateLimitStatusResponse) string {
	if len(response.GetLimits()) == 0 {
		return "no rule counts by this identifier\n"
	}
	var out strings.Builder
	writeLimits(&out, response.GetLimits())
	writeOmitted(&out, response.GetOmitted(), "counters")
	return out.String()
}

func formatReset(response *weirv1.ResetRateLimitResponse) string {
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

func writeOmitted(out *strings.Builder, n uint32, what string) {
	if n > 0 {
		fmt.Fprintf(out, "and %d more %s\n", n, what)
	}
}

func writeLimits(out *strings.Builder, limits []*weirv1.LimitStatus) {
	table := newTable(out, "RULE", "LIMIT", "PER", "ALGORITHM", "LEFT", "RESETS", "NEXT", "OWNER")
	for _, l := range limits {
		table.row(l.GetRuleId(), fmt.Sprintf("%d per %s", l.GetLimit(), limitWindow(l)), orDash(strings.Join(l.GetPer(), ", ")), l.GetAlgorithm(),
			formatLeft(l), formatResets(l), formatNext(l), orDash(l.GetOwner()))
	}
	table.flush()
}

func limitWindow(l *weirv1.LimitStatus) string {
	if l.GetCalendar() != "" {
		return calendarName(l.GetCalendar())
	}
	return per(l.GetWindow().AsDuration())
}

// calendarName turns "month/Europe/Paris/15" into "month (Europe/Paris/15)".
func calendarName(calendar string) string {
	unit, rest, _ := strings.Cut(calendar, "/")
	return fmt.Sprintf("%s (%s)", unit, rest)
}

func formatLeft(l *weirv1.LimitStatus) string {
	if l.GetResetAfter() == nil {
		return "unknown" // its owner does not answer
	}
	return fmt.Sprint(l.GetRemainingTokens())
}

func formatResets(l *weirv1.LimitStatus) string {
	if after := l.GetResetAfter().AsDuration(); after > 0 {
		return "in " + short(after)
	}
	return "-"
}

// formatNext says when the request would have room.
func formatNext(l *weirv1.LimitStatus) string {
	next := "never"
	switch {
	case l.GetDelay() != nil:
		next = "after a delay of " + short(l.GetDelay().AsDuration())
	case l.GetAllowed():
		next = "now"
	case l.GetRetryAfter() != nil:
		next = "in " + short(l.GetRetryAfter().AsDuration())
	}
	if l.GetOverLimit() {
		next += ", above the limit"
	}
	if l.GetShadow() {
		next += " (not enforced)"
	}
	return next
}
