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

// maxCost is the most that the API allows, the bound of tokens_requested.
const maxCost = 1 << 31

func (a *app) checkCommand() *cobra.Command {
	var q nodeFlags
	var domain string
	var cost int64
	var peek bool
	var d descriptors
	cmd := &cobra.Command{
		Use:   "check KEY=VALUE...",
		Short: "Ask whether a request is allowed, and count it",
		Long: `Ask a node whether a request is allowed. An allowed request is counted, unless --peek
is given.

The first KEY=VALUE other than endpoint is the identifier: user=alice, ip=10.0.0.1,
api_key=k1 or any other name. The others are further attributes that rules can match.

The exit code is 0 if the request is allowed, 1 if it is denied, and 2 if there
is no answer.`,
		Example: `  weir check user=alice endpoint=/api/v1/posts
  weir check ip=10.0.0.1 method=POST --cost 5 --domain shop
  weir check user=alice --peek --json
  weir check --domain edge --descriptor user=bob,path=/x --descriptor route=export`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.given() {
				return a.checkDescriptors(cmd, &q, &d, args, domain, cost, peek)
			}
			request, err := parseRequest(args)
			if err != nil {
				return usageError(cmd, "%w", err)
			}
			if err := checkCost(cmd, cost); err != nil {
				return err
			}
			request.TokensRequested, request.Domain, request.Peek = cost, domain, peek
			return a.check(cmd, &q, request)
		},
	}
	addCost(cmd, &cost)
	cmd.Flags().BoolVar(&peek, "peek", false, "only look, and count nothing")
	addDomain(cmd, &domain)
	d.addTo(cmd)
	q.addTo(cmd)
	return cmd
}

// parseRequest turns user=alice endpoint=/posts method=GET into a request.
// Bounds are left to the node, which knows them.
func parseRequest(args []string) (*weirv1.RateLimitRequest, error) {
	request := &weirv1.RateLimitRequest{}
	seen := make(map[string]bool)
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is not KEY=VALUE, such as user=alice", arg)
		}
		if seen[key] {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		switch {
		case key == "endpoint":
			request.Endpoint = value
		case request.GetIdentifierType() == "":
			request.IdentifierType, request.Identifier = key, value
		default:
			if request.Attributes == nil {
				request.Attributes = make(map[string]string)
			}
			request.Attributes[key] = value
		}
	}
	if request.GetIdentifierType() == "" {
		return nil, errNobody
	}
	return request, nil
}

var errNobody = errors.New("missing identifier: add KEY=VALUE, such as user=alice")

// check asks and prints. A denial becomes an error without words.
func (a *app) check(cmd *cobra.Command, q *nodeFlags, request *weirv1.RateLimitRequest) error {
	var allowed bool
	err := a.ask(cmd, q, func(ctx context.Context, c *client.Node) error {
		response, err := c.Check(ctx, request)
		if err != nil {
			return err
		}
		allowed = response.GetAllowed()
		return a.print(q.json, response, formatDecision(request, response))
	})
	if err == nil && !allowed {
		return &exitError{code: 1}
	}
	return err
}

// formatDecision renders an answer for a person.
func formatDecision(request *weirv1.RateLimitRequest, response *weirv1.RateLimitResponse) string {
	var out strings.Builder
	verdict := "denied "
	if response.GetAllowed() {
		verdict = "allowed"
	}
	fmt.Fprintf(&out, "%s  %s=%s", verdict, request.GetIdentifierType(), request.GetIdentifier())
	if request.GetEndpoint() != "" {
		fmt.Fprintf(&out, " endpoint=%s", request.GetEndpoint())
	}
	if cost := request.GetTokensRequested(); cost != 1 {
		fmt.Fprintf(&out, " cost %d", cost)
	}
	switch {
	case response.GetDelay() != nil:
		fmt.Fprintf(&out, ", after a delay of %s", short(response.GetDelay().AsDuration()))
	case response.GetOverLimit():
		out.WriteString(", above the limit")
	case response.GetAllowed():
	case response.GetDenialReason() == weirv1.DenialReason_DENIAL_REASON_BLOCKED:
		out.WriteString(": the rule blocks it")
	case response.GetDenialReason() == weirv1.DenialReason_DENIAL_REASON_UNDECIDED:
	case response.GetRetryAfter() != nil:
		fmt.Fprintf(&out, ", retry after %s", short(response.GetRetryAfter().AsDuration()))
	default:
		out.WriteString(", no wait helps: it costs more than the limit")
	}
	if response.GetWouldDeny() {
		out.WriteString(", a limit that is not enforced has no room")
	}
	if request.GetPeek() {
		out.WriteString(" (only looked)")
	}
	fmt.Fprintf(&out, "\nrule     %s\nsource   %s\n", formatRule(response), formatSource(response.GetSource()))
	return out.String()
}

// formatRule describes the limit that decided and what is left of it.
func formatRule(response *weirv1.RateLimitResponse) string {
	if response.GetRuleId() == "" {
		return "none"
	}
	var window string
	switch {
	case response.GetCalendar() != "":
		window = calendarName(response.GetCalendar())
	case response.GetWindow() != nil:
		window = per(response.GetWindow().AsDuration())
	default:
		return response.GetRuleId()
	}
	rule := fmt.Sprintf("%s: %d per %s", response.GetRuleId(), response.GetLimit(), window)
	switch response.GetSource() {
	case weirv1.Source_SOURCE_FAIL_OPEN, weirv1.Source_SOURCE_FAIL_CLOSED:
		return rule // the tokens left are not known
	default:
	}
	reset := "now"
	if left := response.GetResetAfter().AsDuration(); left > 0 {
		reset = "in " + short(left)
	}
	return fmt.Sprintf("%s, %d remaining, resets %s", rule, response.GetRemainingTokens(), reset)
}

func formatSource(source weirv1.Source) string {
	name := strings.ToLower(strings.TrimPrefix(source.String(), "SOURCE_"))
	switch source {
	case weirv1.Source_SOURCE_OWNER:
		return name + " (the node that keeps the counter)"
	case weirv1.Source_SOURCE_RELAYED:
		return name + " (the node that keeps the counter, through another member)"
	case weirv1.Source_SOURCE_PROVISIONAL:
		return name + " (the standby, from its copy: the node that keeps the counter did not answer in time)"
	case weirv1.Source_SOURCE_LENT:
		return name + " (the asked node, from tokens that the owner of the counter has lent it)"
	case weirv1.Source_SOURCE_NO_RULE:
		return name + " (nothing limits this request)"
	case weirv1.Source_SOURCE_UNLIMITED:
		return name + " (the rule exempts it from all limits)"
	case weirv1.Source_SOURCE_FAIL_OPEN, weirv1.Source_SOURCE_FAIL_CLOSED:
		return name + " (no node that could decide answered in time)"
	case weirv1.Source_SOURCE_UNSPECIFIED:
		return name
	case weirv1.Source_SOURCE_LOCAL:
		return name + " (the asked node, by its share of the limit: the node that keeps the counter did not answer in time)"
	}
	return name
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
