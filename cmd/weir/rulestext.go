package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirlimit/weir/api"
	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/rules"
)

// This file renders rules and their differences for people.

// formatChanges lists the differences: + for a new rule, - for one that is gone,
// and ~ with its fields for one that is different.
func formatChanges(response *weirv1.ApplyRulesResponse) string {
	var out strings.Builder
	for _, c := range response.GetChanges() {
		fmt.Fprintf(&out, "%s %s/%s\n", changeSigns[c.GetKind()], c.GetDomain(), c.GetId())
		for _, f := range c.GetFields() {
			fmt.Fprintf(&out, "    %s: %s -> %s\n", f.GetField(), orDash(f.GetOld()), orDash(f.GetNew()))
		}
	}
	switch more := response.GetMoreChanges(); {
	case more > 0:
		fmt.Fprintf(&out, "and %d more\n", more)
	case response.GetChanged() && len(response.GetChanges()) == 0:
		out.WriteString("only the order of the rules changes\n")
	case !response.GetChanged():
		out.WriteString("nothing changes\n")
	}
	return out.String()
}

var changeSigns = map[weirv1.RuleChange_Kind]string{
	weirv1.RuleChange_KIND_ADDED:   "+",
	weirv1.RuleChange_KIND_CHANGED: "~",
	weirv1.RuleChange_KIND_REMOVED: "-",
}

func formatApplied(response *weirv1.ApplyRulesResponse) string {
	verb := "stored as"
	if !response.GetChanged() {
		verb = "still at"
	}
	return fmt.Sprintf("%s revision %d (%s)\n", verb, response.GetRevision(), response.GetRulesHash())
}

func formatDryRun(response *weirv1.ApplyRulesResponse) string {
	return fmt.Sprintf("not stored: the rules stay at revision %d\n", response.GetRevision())
}

func formatRunning(members int) string {
	if members == 1 {
		return "the only node runs it"
	}
	return fmt.Sprintf("all %d nodes run it", members)
}

// formatMissing describes a node that does not run the rules that it should.
func formatMissing(n *weirv1.Node) string {
	if n.GetRulesHash() == "" {
		return fmt.Sprintf("%s at %s is not registered in etcd", n.GetId(), n.GetAddress())
	}
	return fmt.Sprintf("%s at %s runs %s", n.GetId(), n.GetAddress(), n.GetRulesHash())
}

// formatFile writes a state as a file: the rules, and a document per domain of
// descriptors.
func formatFile(state *weirv1.WatchRulesResponse) (string, error) {
	documents := state.GetDescriptorFiles()
	if docs := api.Documents(state.GetRateLimits()); len(docs) > 0 || len(documents) == 0 {
		text, err := rules.Format(docs)
		if err != nil {
			return "", err
		}
		documents = append([]string{string(text)}, documents...)
	}
	return strings.Join(documents, "---\n"), nil
}

func formatRuleTable(state *weirv1.WatchRulesResponse) string {
	var out strings.Builder
	table := newTable(&out, "DOMAIN", "ID", "WHEN", "PER", "LIMITS", "ALSO", "ENABLED", "REVISION")
	for _, r := range state.GetRateLimits() {
		rule := r.GetRule()
		table.row(r.GetDomain(), r.GetId(), orDash(formatWhen(rule)), orDash(formatPer(rule)), orDash(formatLimits(rule)), orDash(formatAlso(rule)),
			yesNo(rule.Enabled == nil || rule.GetEnabled()), r.GetRevision())
	}
	table.flush()
	fmt.Fprintf(&out, "\nrevision %d (%s), %s\n", state.GetRevision(), state.GetRulesHash(), count(len(state.GetRateLimits()), "rule"))
	return out.String()
}

// formatAlso tells what changes what the limits mean.
func formatAlso(rule *weirv1.Rule) string {
	var parts []string
	add := func(is bool, format string, args ...any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(rule.Enforce != nil, "enforce %d%%", rule.GetEnforce())
	soft, elastic := rule.GetMode().GetSoft(), rule.GetMode().GetElastic()
	add(soft != nil, "soft +%s", soft.GetOver())
	add(elastic != nil, "elastic to %s of %s", elastic.GetUpTo(), elastic.GetParent())
	add(rule.GetMaxDelay() != "", "max delay %s", rule.GetMaxDelay())
	add(rule.GetCost() != "", "cost %s", rule.GetCost())
	add(rule.GetIpv6Prefix() > 0, "IPv6 by /%d", rule.GetIpv6Prefix())
	add(rule.GetOnFailure() != "", "on failure %s", rule.GetOnFailure())
	add(rule.GetDurability() != "", "durability %s", rule.GetDurability())
	add(len(rule.GetReplaces()) > 0, "replaces %s", strings.Join(rule.GetReplaces(), ", "))
	return strings.Join(parts, "; ")
}

func formatWhen(rule *weirv1.Rule) string {
	if path := rule.GetDescriptorPath(); len(path) > 0 {
		return formatPath(path)
	}
	var parts []string
	for _, attribute := range slices.Sorted(maps.Keys(rule.GetWhen())) {
		c := rule.GetWhen()[attribute]
		value := strings.Join(c.GetAnyOf(), "|")
		if c.GetAbsent() {
			value = "(absent)"
		}
		parts = append(parts, attribute+"="+value)
	}
	return strings.Join(parts, " ")
}

func formatPer(rule *weirv1.Rule) string {
	var sets []string
	for _, set := range rule.GetPer() {
		sets = append(sets, strings.Join(set.GetAttributes(), "+"))
	}
	return strings.Join(sets, ", ")
}

func formatLimits(rule *weirv1.Rule) string {
	if rule.GetUnlimited() {
		return "unlimited"
	}
	var limits []string
	for _, l := range rule.GetLimits() {
		window := l.GetWindow()
		if c := l.GetCalendar(); c != nil {
			window = formatCalendar(c)
		}
		text := fmt.Sprintf("%d per %s", l.GetLimit(), window)
		if l.GetBurst() > 0 {
			text += fmt.Sprintf(" burst %d", l.GetBurst())
		}
		if l.GetBuckets() > 0 {
			text += fmt.Sprintf(" in %d buckets", l.GetBuckets())
		}
		if l.GetAlgorithm() != "" {
			text += " " + l.GetAlgorithm()
		}
		limits = append(limits, text)
	}
	return strings.Join(limits, ", ")
}

// formatCalendar tells where a window of a calendar begins, unless that is the default.
func formatCalendar(c *weirv1.Calendar) string {
	text := c.GetCalendar()
	if c.GetAnchor() > 0 {
		text += fmt.Sprintf(" from %d", c.GetAnchor())
	}
	if c.GetTimezone() != "" {
		text += " in " + c.GetTimezone()
	}
	return text
}

// formatLint lists what is wrong, or says what there is.
func formatLint(docs []rules.Document, refused *rules.LoadError) string {
	if len(refused.Problems) > 0 {
		return refused.Error() + "\n"
	}
	return fmt.Sprintf("good: %s, %s\n", count(countRules(docs), "rule"), count(len(docs), "domain"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func countRules(docs []rules.Document) int {
	n := 0
	for _, doc := range docs {
		n += len(doc.Rules) + doc.Limits()
	}
	return n
}

// lintJSON is formatLint for programs, in one line.
func lintJSON(docs []rules.Document, refused *rules.LoadError) (string, error) {
	type problem struct {
		File    string `json:"file"`
		Line    int    `json:"line"`
		Column  int    `json:"column"`
		Rule    string `json:"rule"`
		Field   string `json:"field"`
		Message string `json:"message"`
	}
	answer := struct {
		Rules    int       `json:"rules"`
		Problems []problem `json:"problems"`
		More     int       `json:"more_problems"`
	}{countRules(docs), []problem{}, refused.More}
	for _, p := range refused.Problems {
		answer.Problems = append(answer.Problems, problem{p.File, p.Line, p.Column, p.Rule, p.Field, p.Message})
	}
	line, err := json.Marshal(answer)
	return string(line) + "\n", err
}
