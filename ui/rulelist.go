package ui

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds of the list of rules.
const (
	maxRuleRows = 500
	pageOfRules = 1000
	maxPages    = 50 // of rules that are searched
	maxQuery    = 200
)

// ruleView is a rule in the words of a row.
type ruleView struct {
	*weirv1.RateLimit
	When, Per, Limits []string
	Kind              string // what it does above its limits
	Tone              string
	Enforce           uint32
	On                bool
	ReadOnly          bool // of a file of envoyproxy/ratelimit
}

// URL is the path of the rule's page.
func (v ruleView) URL() string { return ruleURL(v.GetDomain(), v.GetId()) }

// Changeable reports whether the rule can be changed by itself.
func (v ruleView) Changeable() bool { return v.GetRevision() > 0 && !v.ReadOnly }

// ruleListBody is the list.
type ruleListBody struct {
	Query     string
	Rules     []ruleView
	All, More int // rules of all domains, and rows that are not shown
	Revision  int64
	RulesHash string
}

func (s *Server) listRules(w http.ResponseWriter, r *http.Request) {
	query := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(query) > maxQuery {
		query = strings.ToValidUTF8(query[:maxQuery], "")
	}
	body, err := s.searchRules(r.Context(), query)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "rules", "Rules", "rules", body)
}

// searchRules returns the rules in which all words of query occur.
func (s *Server) searchRules(ctx context.Context, query string) (ruleListBody, error) {
	body := ruleListBody{Query: query}
	words := strings.Fields(strings.ToLower(query))
	req := &weirv1.ListRateLimitsRequest{PageSize: pageOfRules}
	for range maxPages {
		list, err := s.rules.ListRateLimits(ctx, req)
		if err != nil {
			return body, err
		}
		body.Revision, body.RulesHash = list.GetRevision(), list.GetRulesHash()
		for _, rule := range list.GetRateLimits() {
			body.All++
			v := viewOf(rule)
			if !v.has(words) {
				continue
			}
			if len(body.Rules) == maxRuleRows {
				body.More++
				continue
			}
			body.Rules = append(body.Rules, v)
		}
		if req.PageToken = list.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	return body, nil
}

// has reports whether all words occur in what a row says.
func (v ruleView) has(words []string) bool {
	text := strings.ToLower(strings.Join(slices.Concat([]string{v.GetDomain(), v.GetId(), v.Kind}, v.When, v.Per, v.Limits), "\n"))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// viewOf returns what a row says of a rule.
func viewOf(rule *weirv1.RateLimit) ruleView {
	full := rule.GetRule()
	v := ruleView{RateLimit: rule, Kind: "enforced", Tone: "good", Enforce: 100, On: full == nil || full.Enabled == nil || full.GetEnabled(), ReadOnly: full.GetDescriptorYaml() != ""}
	if full != nil && full.Enforce != nil {
		v.Enforce = full.GetEnforce()
	}
	when := full.GetWhen()
	for _, name := range slices.Sorted(maps.Keys(when)) {
		v.When = append(v.When, conditionText(name, when[name]))
	}
	for _, e := range full.GetDescriptorPath() {
		v.When = append(v.When, e.GetKey()+" = "+cmp.Or(e.GetValue(), "any"))
	}
	for _, set := range full.GetPer() {
		v.Per = append(v.Per, strings.Join(set.GetAttributes(), " and "))
	}
	for _, l := range full.GetLimits() {
		v.Limits = append(v.Limits, limitText(l))
	}
	mode := full.GetMode()
	switch {
	case !v.On:
		v.Kind, v.Tone = "off", "off"
	case full.GetUnlimited():
		v.Kind, v.Tone = "unlimited", "off"
	case v.Enforce == 0:
		v.Kind, v.Tone = "shadow", "busy"
	case v.Enforce < 100:
		v.Kind, v.Tone = fmt.Sprintf("%d %%", v.Enforce), "busy"
	case mode.GetSoft() != nil:
		v.Kind = "soft, " + mode.GetSoft().GetOver() + " over"
	case mode.GetElastic() != nil:
		v.Kind = "elastic, up to " + mode.GetElastic().GetUpTo()
	}
	return v
}

func conditionText(name string, c *weirv1.Condition) string {
	if c.GetAbsent() {
		return "no " + name
	}
	return name + " = " + strings.Join(c.GetAnyOf(), " or ")
}

// limitText says a limit in words, such as "100 in 1m, token_bucket".
func limitText(l *weirv1.Limit) string {
	window := l.GetWindow()
	if c := l.GetCalendar(); c != nil {
		window = c.GetCalendar()
		if c.GetTimezone() != "" {
			window += " (" + c.GetTimezone() + ")"
		}
	}
	text := formatCount(l.GetLimit()) + " per " + window
	if l.GetBurst() > 0 {
		text += ", burst " + formatCount(l.GetBurst())
	}
	return text
}
