package main

import (
	"fmt"
	"strings"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const noDescriptorLimit = "these descriptors have no limit\n"

func verdict(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}

// formatEnvoy renders an answer to Envoy for a person.
func formatEnvoy(texts []string, response *rlsv3.RateLimitResponse) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\n", verdict(response.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT))
	table := newTable(&out, "DESCRIPTOR", "CODE", "NAME", "LIMIT", "LEFT", "RESETS")
	for i, s := range response.GetStatuses() {
		name, limit, left, resets := "-", "none", "-", "-"
		switch l := s.GetCurrentLimit(); {
		case l != nil:
			name = orDash(l.GetName())
			limit = fmt.Sprintf("%d per %s", l.GetRequestsPerUnit(), strings.ToLower(l.GetUnit().String()))
			left, resets = fmt.Sprint(s.GetLimitRemaining()), "in "+short(s.GetDurationUntilReset().AsDuration())
		case s.GetLimitRemaining() > 0:
			limit = "unlimited"
		}
		table.row(texts[i], s.GetCode(), name, limit, left, resets)
	}
	table.flush()
	return out.String()
}

// formatDescriptors renders what descriptors lead to, and why.
func formatDescriptors(texts []string, response *weirv1.ExplainDescriptorsResponse) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s (only looked)\n\n", verdict(response.GetAllowed()))
	table := newTable(&out, "DESCRIPTOR", "RULE", "APPLIES", "WHY")
	for i, d := range response.GetDescriptors() {
		table.row(texts[i], orDash(d.GetRuleId()), yesNo(d.GetApplies()), orDash(d.GetReason()))
	}
	table.flush()
	if limits := descriptorLimits(response); len(limits) > 0 {
		out.WriteString("\n")
		writeLimits(&out, limits)
	}
	return out.String()
}

// formatDescriptorLimits renders the counters of what descriptors lead to.
func formatDescriptorLimits(_ []string, response *weirv1.ExplainDescriptorsResponse) string {
	limits := descriptorLimits(response)
	if len(limits) == 0 {
		return noDescriptorLimit
	}
	var out strings.Builder
	writeLimits(&out, limits)
	return out.String()
}

func descriptorLimits(response *weirv1.ExplainDescriptorsResponse) []*weirv1.LimitStatus {
	var limits []*weirv1.LimitStatus
	for _, d := range response.GetDescriptors() {
		if d.GetLimit() != nil {
			limits = append(limits, d.GetLimit())
		}
	}
	return limits
}

// formatPath renders the conditions of a limit of envoyproxy/ratelimit's files as --descriptor
// takes them, with a star for any value.
func formatPath(path []*weirv1.DescriptorEntry) string {
	parts := make([]string, len(path))
	for i, e := range path {
		value := strings.NewReplacer(`\`, `\\`, ",", `\,`).Replace(e.GetValue())
		parts[i] = e.GetKey() + "=" + orAny(value)
	}
	return strings.Join(parts, ",")
}

func orAny(value string) string {
	if value == "" {
		return "*"
	}
	return value
}
