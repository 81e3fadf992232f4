package ui

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// ruleBody is the page of one rule.
type ruleBody struct {
	Rule   ruleView
	Fields []fieldView
}

// fieldView is a line of the page of a rule.
type fieldView struct {
	Name   string
	Values []string
}

func (s *Server) showRule(w http.ResponseWriter, r *http.Request) {
	rule, err := s.rules.GetRateLimit(r.Context(), &weirv1.GetRateLimitRequest{Domain: r.PathValue("domain"), Id: r.PathValue("id")})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, "rule", rule.GetId(), "rules", ruleBody{viewOf(rule), fieldsOf(rule.GetRule())})
}

// fieldsOf returns what a rule says, except for its name.
func fieldsOf(rule *weirv1.Rule) (fields []fieldView) {
	add := func(name string, values ...string) {
		if len(values) > 0 && strings.Join(values, "") != "" {
			fields = append(fields, fieldView{name, values})
		}
	}
	var conditions []string
	for _, name := range slices.Sorted(maps.Keys(rule.GetWhen())) {
		conditions = append(conditions, conditionText(name, rule.GetWhen()[name]))
	}
	add("Applies when", conditions...)
	if len(conditions) == 0 {
		add("Applies when", "always")
	}
	var per, limits []string
	for _, set := range rule.GetPer() {
		per = append(per, strings.Join(set.GetAttributes(), " and "))
	}
	add("A counter for each", per...)
	if len(per) == 0 && !rule.GetUnlimited() {
		add("A counter for each", "one for all")
	}
	for _, l := range rule.GetLimits() {
		limits = append(limits, limitText(l)+", "+cmp.Or(l.GetAlgorithm(), "sliding_window"))
	}
	add("Limits", limits...)
	if rule.GetUnlimited() {
		add("Limits", "unlimited: what matches is exempt from every limit")
	}
	add("Replaces", rule.GetReplaces()...)
	add("Cost", rule.GetCost())
	add("Longest delay", rule.GetMaxDelay())
	if m := rule.GetMode().GetSoft(); m != nil {
		add("Above the limit", "allowed and flagged, "+m.GetOver()+" over")
	}
	if m := rule.GetMode().GetElastic(); m != nil {
		add("Above the limit", "allowed up to "+m.GetUpTo()+" while "+m.GetParent()+" has room")
	}
	add("If no node can decide", cmp.Or(rule.GetOnFailure(), "allow"))
	add("Durability", cmp.Or(rule.GetDurability(), "relaxed"))
	add("Descriptor", rule.GetDescriptorYaml())
	return fields
}
