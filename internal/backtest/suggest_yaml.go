package backtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"
)

// Documents returns the rules with the limits found. Rules without one stay as they are, or are left out if they have
// no limits of their own. Enforce is that of all rules with a new limit, in percent.
func (s *Suggestion) Documents(enforce int64) (docs []rules.Document) {
	next := 0
	for _, doc := range s.set.Documents() {
		kept := rules.Document{Domain: doc.Domain}
		for _, spec := range doc.Rules {
			var found *RuleSuggestion
			if next < len(s.Rules) && s.Rules[next].Domain == doc.Domain && s.Rules[next].Rule == spec.ID {
				found = &s.Rules[next]
				next++
			}
			switch {
			case found != nil && len(found.Limits) > 0:
				kept.Rules = append(kept.Rules, found.apply(spec, enforce))
			case !s.own:
				kept.Rules = append(kept.Rules, spec)
			}
		}
		if len(kept.Rules) > 0 {
			docs = append(docs, kept)
		}
	}
	return docs
}

// apply replaces the limits of a rule. What only the old ones could have goes with them.
func (r *RuleSuggestion) apply(spec rules.Spec, enforce int64) rules.Spec {
	spec.Limits, spec.Mode, spec.MaxDelay, spec.Enforce = nil, nil, "", &enforce
	for _, l := range r.Limits {
		limit := rules.LimitSpec{Limit: l.Limit, Window: WindowText(time.Duration(l.Window)), Burst: l.Burst}
		if l.Algorithm != algorithms.SlidingWindow.String() {
			limit.Algorithm = l.Algorithm
		}
		spec.Limits = append(spec.Limits, limit)
	}
	return spec
}

// YAML returns the rules as a file in which the new limits are not enforced, with why as comments. It has no keys of
// the log.
func (s *Suggestion) YAML() ([]byte, error) {
	body, err := rules.Format(s.Documents(0))
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Limits suggested from %d lines of a log, which touch at most %v %% of the well-behaved keys of each rule.\n", s.Lines, s.Touch)
	b.WriteString("# They deny nothing yet: raise enforce when what they would deny is what they should.\n")
	for i := range s.Rules {
		r := &s.Rules[i]
		fmt.Fprintf(&b, "#\n# %s/%s\n", r.Domain, r.Rule)
		for _, text := range r.Reasons() {
			fmt.Fprintf(&b, "#   %s\n", text)
		}
	}
	return append([]byte(b.String()), body...), nil
}

// Reasons are the sentences about a rule: why its limits are as they are, and its notes.
func (r *RuleSuggestion) Reasons() (all []string) {
	for _, l := range r.Limits {
		all = append(all, l.Why...)
	}
	return append(all, r.Notes...)
}

// WindowText is a length as rules write it, such as 1m30s.
func WindowText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
