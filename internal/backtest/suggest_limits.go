package backtest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirlimit/weir/algorithms"
)

// Result ends the Suggester and returns what it has found.
func (s *Suggester) Result() *Suggestion {
	all := &Suggestion{
		LogFacts: s.run.Result().LogFacts, Touch: s.config.Touch, Headroom: s.config.Headroom,
		Rules: []RuleSuggestion{}, set: s.set, own: s.own,
	}
	for _, p := range s.rules {
		if p != nil {
			all.Rules = append(all.Rules, s.suggest(p))
		}
	}
	all.noteLog()
	if s.checks > 0 && s.allowed == 0 {
		all.Notes = append(all.Notes, "No check of the log is allowed, so it does not say what callers need. Write it with --decision-log-which all.")
	}
	return all
}

// noteLog says what is wrong with the log as a whole.
func (s *Suggestion) noteLog() {
	add := func(format string, args ...any) { s.Notes = append(s.Notes, fmt.Sprintf(format, args...)) }
	if left := s.Lines - s.Read(); float64(left) > noticeable*float64(s.Lines) {
		add("Only %d of %d lines could be read: the limits are those of these lines.", s.Read(), s.Lines)
	}
	if float64(s.Backward) > noticeable*float64(s.Read()) {
		add("Of %d lines, %d are earlier than one before, and count as of its instant, so limits may be far too high. Merge the logs of several servers by time.", s.Read(), s.Backward)
	}
}

// suggest finds the limits of a rule.
func (s *Suggester) suggest(p *population) RuleSuggestion {
	r := RuleSuggestion{Domain: p.rule.Domain, Rule: p.rule.ID, Lines: p.lines, Keys: len(p.keys), SampledOneIn: 1 << p.level, Limits: []LimitSuggestion{}}
	keys := make([]*keyStats, 0, len(p.keys))
	for _, k := range p.keys {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, byLines)
	main := s.slidingMeasure(s.config.Windows[0])
	if len(p.rule.Per) > 0 { // else it is the traffic of all callers
		for _, k := range keys {
			k.look()
		}
		if n := outliers(keys, main); n > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%d keys need far more than half of the others. They are too many to take them for machines, so the limits fit them, too.", n))
		}
	}
	c := &chooser{
		measures: s.measures, covered: s.run.latest - s.run.first, sampled: p.level > 0, touch: s.config.Touch / 100, headroom: s.config.Headroom / 100,
	}
	var machines []*keyStats
	guessed, guessedLines, lines := 0, int64(0), int64(0)
	for _, k := range keys {
		if lines += k.lines; k.guessed() {
			guessed++
			guessedLines += k.lines
		}
		if len(k.signs) > 0 {
			machines = append(machines, k)
		} else {
			c.well = append(c.well, k)
		}
	}
	r.WellBehaved, r.MachineKeys = len(c.well), len(machines)
	typical := int64(0)
	if len(c.well) > 0 {
		typical = c.need(main, len(c.well)/2)
		s.chooseAll(&r, c, machines)
		r.Needs = c.quantiles()
	}
	for i, k := range machines {
		if r.MachineLines += k.lines; i < machinesShown {
			r.Machines = append(r.Machines, k.machine(main, typical))
		}
	}
	if len(s.domains) > 0 && !slices.Contains(s.domains, r.Domain) && len(s.domains) < mostDomains {
		r.Notes = append(r.Notes, fmt.Sprintf("The log has no check of domain %s: it has the domains %q. Name one of them with --domain, or in --rules.", r.Domain, s.domains))
	}
	if 100*guessed >= guessedKeys*len(keys) && guessed > 1 || 100*guessedLines >= guessedShare*lines && guessed > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d of %d keys, with %s of the lines, are taken for machines by their rate or regular gaps alone. People can have these signs, too: look at the list.",
			guessed, len(keys), shareText(guessedLines, lines)))
	}
	r.note()
	return r
}

// slidingMeasure returns the index of a sliding window.
func (s *Suggester) slidingMeasure(window time.Duration) int {
	return slices.IndexFunc(s.measures, func(m measure) bool { return m.rate == 0 && m.window == window })
}

func (s *Suggester) chooseAll(r *RuleSuggestion, c *chooser, machines []*keyStats) {
	each, sure := c.touchable(len(s.config.Windows))
	r.MayTouch = each * len(s.config.Windows)
	if !sure {
		r.Notes = append(r.Notes, "The sample is too small to be sure of the share of all keys.")
	}
	for _, w := range s.config.Windows {
		one, other := c.choose(int64(w), each, s.config.Algorithm)
		told := one.valid && c.tells(int64(w))
		if told {
			r.Limits = append(r.Limits, c.explain(one, other, each, machines))
		}
		if note := c.shortfall(w, told, s.config.Algorithm); note != "" {
			r.Notes = append(r.Notes, note)
		}
	}
}

// shortfall says why a limit of a window cannot be told, or which one was not tried; nothing if all were.
func (c *chooser) shortfall(w time.Duration, told bool, only algorithms.Algorithm) string {
	window, covers, takes := WindowText(w), WindowText(time.Duration(c.covered).Truncate(time.Second)), WindowText(enoughWindows*w)
	switch {
	case !c.tells(int64(w)):
		return fmt.Sprintf("No limit of %s can be told: the log covers only %s.", window, covers)
	case !told && only == algorithms.TokenBucket && !c.tellsBucket(int64(w)):
		return fmt.Sprintf("No token_bucket of %s can be told: the log covers only %s, and it takes %s.", window, covers, takes)
	case !told:
		return fmt.Sprintf("No limit of %s can be told: keys need more than any has.", window)
	case only == 0 && !c.tellsBucket(int64(w)):
		return fmt.Sprintf("The log covers only %s: too little for a token_bucket of %s, which takes %s.", covers, window, takes)
	}
	return ""
}

// explain says what a limit does.
func (c *chooser) explain(is, other candidate, each int, machines []*keyStats) LimitSuggestion {
	l, m := c.limit(is), c.measures[is.measure]
	s := LimitSuggestion{Limit: l.Limit, Window: l.Window, Burst: l.Burst, Algorithm: l.Algorithm.String(), Needed: is.need, Rate: m.rate}
	touched := above(c.well, is.measure, l.Capacity())
	s.Touched, s.MachinesTouched = len(touched), len(above(machines, is.measure, l.Capacity()))
	for _, k := range touched[:min(touchedShown, len(touched))] {
		s.TouchedKeys = append(s.TouchedKeys, NearKey{Key: k.text, Peak: k.measured[is.measure].need})
	}
	for i, b := range c.measures {
		if b.rate > 0 && b.window == m.window {
			s.BurstNeeds = append(s.BurstNeeds, BurstNeed{Rate: b.rate, Burst: c.need(i, each)})
		}
	}
	window := WindowText(m.window)
	if m.rate == 0 {
		s.Reasons = append(s.Reasons, fmt.Sprintf("%s need at most %d in %s.", c.allBut(each), is.need, window))
	} else {
		s.Reasons = append(s.Reasons, fmt.Sprintf("%s need a burst of at most %d at a rate of %d in %s.", c.allBut(each), is.need, m.rate, window))
	}
	touches := "none"
	if s.Touched > 0 {
		touches = fmt.Sprintf("at most %d", s.Touched)
	}
	s.Reasons = append(s.Reasons, fmt.Sprintf("It touches %s of them, and %d of %d keys taken for machines.", touches, s.MachinesTouched, len(machines)))
	if other.valid {
		s.Reasons = append(s.Reasons, fmt.Sprintf("In ten windows it allows a key about %d tokens; a %s that touches no more keys would allow %d.",
			is.most, c.measures[other.measure].limit.Algorithm, other.most))
	}
	return s
}

// allBut names the well-behaved keys that a limit is made for.
func (c *chooser) allBut(touched int) string {
	if touched == 0 {
		return fmt.Sprintf("All %d well-behaved keys", len(c.well))
	}
	return fmt.Sprintf("All but %d of %d well-behaved keys", touched, len(c.well))
}

// quantiles returns the needs of the well-behaved keys, by window.
func (c *chooser) quantiles() (all []Needs) {
	n := len(c.well)
	rank := func(share float64) int { return n - int(math.Ceil(share*float64(n))) } // how many are above
	for i, m := range c.measures {
		if m.rate == 0 {
			all = append(all, Needs{Window: m.limit.Window, Half: c.need(i, rank(0.5)), Most90: c.need(i, rank(0.9)), Most99: c.need(i, rank(0.99)), All: c.need(i, 0)})
		}
	}
	return all
}

// note says what to be careful about.
func (r *RuleSuggestion) note() {
	add := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	switch {
	case r.Lines == 0:
		add("No line has a key of this rule.")
	case r.WellBehaved == 0:
		add("All keys are taken for machines, so the log does not say what others need.")
	case r.MachineKeys > r.WellBehaved:
		add("More than half of the keys are taken for machines. Look at the list before you rely on the limits.")
	case r.WellBehaved < fewKeys && r.Keys > 1:
		add("There are only %d well-behaved keys, which may not be like others.", r.WellBehaved)
	}
	if r.SampledOneIn > 1 {
		add("There are too many keys to measure: the numbers are those of one key in about %d.", r.SampledOneIn)
	}
}

func shareText(n, of int64) string { return fmt.Sprintf("%.0f%%", 100*float64(n)/float64(max(1, of))) }

// roundGap is where a bin of gaps begins, for people.
func roundGap(bin int) time.Duration {
	d := gapOf(bin)
	unit := time.Millisecond
	for unit*100 < d {
		unit *= 10
	}
	return d.Round(unit)
}
