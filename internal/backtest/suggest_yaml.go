package backtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"
)

// Documents returns the rules with the limits found. Rules without one stay as they are, or are left out if they have
// no limits of their own. Enforce is that of all rules with a new limit, in percent.
func (s *Suggestion) Documents(enforce int64) (docs []rules.Document) {
	return s.documents(func(spec rules.Spec, found *RuleSuggestion) []rules.Spec {
		return []rules.Spec{found.apply(spec, enforce)}
	})
}

// shadows returns the rules with the limits found, which deny nothing. A rule that denies stays as it is, and its new limits
// are those of a further rule. The texts, by domain and id, say so of the rules that stay.
func (s *Suggestion) shadows() (docs []rules.Document, texts map[[2]string]string) {
	added, taken := make(map[[2]string]string), make(map[[2]string]bool)
	texts = make(map[[2]string]string)
	docs = s.documents(func(spec rules.Spec, found *RuleSuggestion) []rules.Spec {
		shadow := found.apply(spec, 0)
		if s.own || !denies(&spec) {
			return []rules.Spec{shadow}
		}
		shadow.ID = suggestedID(spec.ID)
		at := [2]string{found.Domain, spec.ID}
		other := [2]string{found.Domain, shadow.ID}
		if s.set.Rule(found.Domain, shadow.ID) != nil || taken[other] { // of a suggestion before this one, or with an id that was cut
			texts[at] = "It denies, and stays as it is: there is " + shadow.ID + " already."
			return []rules.Spec{spec}
		}
		added[at], taken[other] = shadow.ID, true
		texts[at] = "It denies, and stays as it is. The limits are those of " + shadow.ID + "."
		return []rules.Spec{spec, shadow}
	})
	for _, doc := range docs {
		for i := range doc.Rules { // what replaces a rule also replaces the one added for it
			r := &doc.Rules[i]
			for _, id := range slices.Clone(r.Replaces) {
				if other := added[[2]string{doc.Domain, id}]; other != "" {
					r.Replaces = append(slices.Clone(r.Replaces), other)
				}
			}
		}
	}
	return docs, texts
}

// denies reports whether a rule denies any request.
func denies(spec *rules.Spec) bool {
	return (spec.Enabled == nil || *spec.Enabled) && (spec.Enforce == nil || *spec.Enforce > 0)
}

// suggestedID is the id of the rule that is added for another. A long one is cut, so two rules may have the same.
func suggestedID(id string) string {
	const suffix, most = "-suggested", 128 // as rules are bounded
	return id[:min(len(id), most-len(suffix))] + suffix
}

// documents returns the rules, each with limits found as change returns it.
func (s *Suggestion) documents(change func(rules.Spec, *RuleSuggestion) []rules.Spec) (docs []rules.Document) {
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
				kept.Rules = append(kept.Rules, change(spec, found)...)
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

// YAML returns the rules as a file in which the new limits are not enforced, with why as comments. Rules that deny stay as
// they are, and their new limits are rules of their own. It has no keys of the log.
func (s *Suggestion) YAML() ([]byte, error) {
	docs, texts := s.shadows()
	body, err := rules.Format(docs)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Limits suggested from %d lines of a log, which touch at most %v %% of the well-behaved keys of each rule.\n", s.Read(), s.Touch)
	b.WriteString("# They deny nothing yet: raise enforce when what they would deny is what they should. Where the file is applied, its rules\n")
	b.WriteString("# replace those of the same name: look at \"weir rules diff\" first.\n")
	for _, text := range append(s.troubles(), s.Notes...) {
		fmt.Fprintf(&b, "# %s\n", text)
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		fmt.Fprintf(&b, "#\n# %s/%s\n", r.Domain, r.Rule)
		if text := texts[[2]string{r.Domain, r.Rule}]; text != "" {
			fmt.Fprintf(&b, "#   %s\n", text)
		}
		for _, text := range r.Reasons() {
			fmt.Fprintf(&b, "#   %s\n", text)
		}
	}
	return append([]byte(b.String()), body...), nil
}

// troubles say what is wrong with lines of the log.
func (s *Suggestion) troubles() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Skipped)) {
		all = append(all, fmt.Sprintf("Left out: %d lines, %s.", s.Skipped[name], name))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Missing)) {
		all = append(all, fmt.Sprintf("Lines without %q: %d.", name, s.Missing[name]))
	}
	if s.Backward > 0 {
		all = append(all, fmt.Sprintf("Lines earlier than one before: %d, by %s at most.", s.Backward, time.Duration(s.WorstBackward*float64(time.Second))))
	}
	return all
}

// Reasons are the sentences about a rule: why its limits are as they are, and its notes.
func (r *RuleSuggestion) Reasons() (all []string) {
	for _, l := range r.Limits {
		all = append(all, l.Reasons...)
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
