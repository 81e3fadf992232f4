package backtest

import (
	"cmp"
	"maps"
	"slices"
)

// LogFacts are about the log, under any rules. Instants are Unix seconds.
type LogFacts struct {
	// Lines are all that are not blank, those of Skipped included.
	Lines int64 `json:"lines"`
	// Skipped are lines that were not decided, by why: broken, no_time, ahead, hashed, not_decided, or refused: a node would
	// have answered with an error. FirstSkipped says where the first line of each stands.
	Skipped      map[string]int64  `json:"skipped,omitempty"`
	FirstSkipped map[string]string `json:"first_skipped,omitempty"`
	// Missing are decided lines that lack the field of an attribute, by attribute.
	Missing map[string]int64 `json:"missing,omitempty"`
	// Backward are lines that are earlier than one before, and WorstBackward the longest step back in seconds.
	Backward      int64   `json:"backward"`
	WorstBackward float64 `json:"worst_backward_seconds"`
	First         int64   `json:"first"`
	Last          int64   `json:"last"`
}

// Result is what a Run has found. Lines are Allowed + Denied + the sum of Skipped.
type Result struct {
	LogFacts

	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	// Unlimited and NoRule are those of Allowed that a rule exempts, and that no rule limits.
	Unlimited int64 `json:"unlimited"`
	NoRule    int64 `json:"no_rule"`
	// Sources are lines of a decision log by the source of the decision in it: what has decided.
	Sources map[string]int64 `json:"sources,omitempty"`
	// Differing are those that the replay decides in another way: under the rules to compare with, or else the tried ones.
	Differing map[string]int64 `json:"differing,omitempty"`
	// Inexact are lines of a decision log that do not say enough to be decided exactly, by why: provisional, lent, undecided,
	// token_lease, returned or not_utf8. Of several reasons the first counts. Unexplained are those of Differing that are not among them.
	Inexact     map[string]int64 `json:"inexact,omitempty"`
	Unexplained int64            `json:"unexplained,omitempty"`
	// Approximate are lines of a decision log about tokens that were lent or given back.
	Approximate int64 `json:"approximate,omitempty"`
	// MostCounters is how many were live at once.
	MostCounters int          `json:"most_counters"`
	Rules        []RuleResult `json:"rules"`
	Over         []Moment     `json:"over_time"`
	// Step is the length of each part of Over in seconds.
	Step    int64       `json:"step_seconds"`
	Against *Comparison `json:"against,omitempty"`
	// Suggestion is set by a caller that replays suggested rules, for the page of WriteHTML.
	Suggestion *Suggestion `json:"-"`
}

// Decided is how many lines are not Skipped: shares of denials are of these.
func (r *Result) Decided() int64 { return r.Allowed + r.Denied }

// RuleResult is what one rule did.
type RuleResult struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Lines are those that the rule applied to: Allowed + Denied, WouldDeny among Allowed.
	Lines   int64 `json:"lines"`
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	// WouldDeny are those that the rule denies for keys that it is not enforced for.
	WouldDeny int64 `json:"would_deny"`
	// Keys are counters by key. A key that comes back when its counter has expired counts again.
	Keys       int64 `json:"keys"`
	DeniedKeys int64 `json:"denied_keys"`
	// Top are the keys with the most denials. Each count is too low by at most TopMissed.
	Top       []TopKey      `json:"top"`
	TopMissed int64         `json:"top_missed"`
	Limits    []LimitResult `json:"limits"`
}

// LimitResult is what one limit of a rule saw.
type LimitResult struct {
	// Limit is that of the rule in tokens per window, and Window the window's length in nanoseconds.
	Limit     int64  `json:"limit"`
	Window    int64  `json:"window"`
	Algorithm string `json:"algorithm"`
	Denied    int64  `json:"denied"`
	// Bins count windows by the tokens that a key asked for in one, as a share of Limit.
	Bins []Bin `json:"windows"`
	// Above and Below are the keys whose fullest window is nearest to the limit on either side.
	Above []NearKey `json:"above,omitempty"`
	Below []NearKey `json:"below,omitempty"`
}

// Bin counts the windows that are above the share of the bin before, up to UpTo. The last one has no end.
type Bin struct {
	UpTo    float64 `json:"up_to"`
	Windows int64   `json:"windows"`
}

// Comparison is how other rules decide the same lines.
type Comparison struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	// NewlyDenied are lines that only the tried rules deny, NewlyAllowed those that only the others deny.
	NewlyDenied  int64        `json:"newly_denied"`
	NewlyAllowed int64        `json:"newly_allowed"`
	Rules        []RuleResult `json:"rules"`
}

// BothDenied are lines that both sets of rules deny.
func (c *Comparison) BothDenied() int64 { return c.Denied - c.NewlyAllowed }

// BothAllowed are lines that both sets of rules allow.
func (c *Comparison) BothAllowed() int64 { return c.Allowed - c.NewlyDenied }

// topShown is how many keys of each rule a Result has.
const topShown = 20

// Result ends the replay and returns what it has found. The Run is of no use then.
func (r *Run) Result() *Result {
	r.replayOrdered(0)
	r.settleAll()
	res := &Result{
		LogFacts: LogFacts{
			Lines: r.lines, Backward: r.backward, WorstBackward: float64(r.worst) / float64(second), First: r.first / second, Last: r.latest / second,
			Skipped: make(map[string]int64), FirstSkipped: make(map[string]string), Missing: make(map[string]int64),
		},
		Allowed: r.both[0][0] + r.both[0][1], Denied: r.both[1][0] + r.both[1][1],
		Unlimited: r.one.all.Unlimited, NoRule: r.one.all.NoRule,
		Sources: r.sources, Differing: r.differs, Inexact: r.inexact, Unexplained: r.unexplained, Approximate: r.approx, MostCounters: r.one.counters.most,
		Over: r.series.list(), Step: r.series.step / second,
	}
	for f, n := range r.faults {
		if n > 0 {
			res.Skipped[faultNames[f]], res.FirstSkipped[faultNames[f]] = n, r.examples[f]
		}
	}
	if n := r.lines - res.Allowed - res.Denied - sum(r.faults[:]); n > 0 {
		res.Skipped["refused"] = n
	}
	for i, n := range r.missing {
		if n > 0 {
			res.Missing[r.maps[i].Attribute] = n
		}
	}
	res.Rules = r.one.results()
	if r.against != nil {
		res.Against = &Comparison{
			Allowed: r.both[0][0] + r.both[1][0], Denied: r.both[0][1] + r.both[1][1],
			NewlyDenied: r.both[1][0], NewlyAllowed: r.both[0][1], Rules: r.against.results(),
		}
		res.MostCounters += r.against.counters.most
	}
	return res
}

func sum(n []int64) (total int64) {
	for _, v := range n {
		total += v
	}
	return total
}

// results returns all rules that applied to a line, those that deny most first.
func (e *engine) results() []RuleResult {
	e.counters.end()
	all := []RuleResult{}
	for _, s := range e.rules {
		if s != nil {
			all = append(all, s.result())
		}
	}
	for _, domain := range slices.Sorted(maps.Keys(e.own)) {
		all = append(all, e.own[domain].result())
	}
	slices.SortStableFunc(all, func(a, b RuleResult) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.WouldDeny, a.WouldDeny))
	})
	return all
}

func (s *ruleStats) result() RuleResult {
	res := RuleResult{
		Domain: s.rule.Domain, Rule: s.rule.ID, Lines: s.Checks, Allowed: s.Checks - s.Denied, Denied: s.Denied, WouldDeny: s.WouldDeny,
		Keys: s.keys, DeniedKeys: s.deniedKeys, Top: s.top.list(topShown), TopMissed: s.top.missed,
	}
	if s.rule.ID == OwnLimits { // each request has its own
		return res
	}
	for i := range s.limits {
		l, of := &s.limits[i], s.rule.Limits[i]
		lr := LimitResult{Limit: of.Limit, Window: of.Length(), Algorithm: of.Algorithm.String(), Denied: l.Denied, Above: l.above.keys, Below: l.below.keys}
		for b, n := range l.rates.bins {
			lr.Bins = append(lr.Bins, Bin{UpTo: binEnd(b), Windows: n})
		}
		res.Limits = append(res.Limits, lr)
	}
	return res
}
