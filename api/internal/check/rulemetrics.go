package check

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// tallies counts what became of the limits of each rule, which is what limits are
// tuned by. There are as many as the rules in force.
type tallies struct {
	current func() *rules.Set
	top     *topkeys.Recorder // nil: no events are drawn
	state   atomic.Pointer[tallyState]
	mu      sync.Mutex // held while state is replaced
}

// tallyState belongs to one set. A rule that stays keeps its tally.
type tallyState struct {
	set    *rules.Set
	byRank []*tally
}

// tally is what became of one rule's limits. It fills two cache lines, so that rules do not wait for each other: what
// each check writes and compares stands in the first one.
type tally struct {
	counts [outcomes]atomic.Uint64
	// next are the numbers of the next limits that are drawn for the lists of keys, by outcome: a limit is drawn if
	// counts has reached it.
	next [outcomes]atomic.Uint64

	rule  *rules.Rule
	renew atomic.Int64  // when next is chosen again, as Recorder.At
	pace  *topkeys.Pace // nil: next and renew are never reached
	_     [64 - 8 - 8 - 8]byte
}

// newTally returns the tally of a rule, whose events are drawn by pace.
func newTally(r *rules.Rule, pace *topkeys.Pace) *tally {
	t := &tally{rule: r, pace: pace}
	for i := range t.next {
		if t.next[i].Store(1); pace == nil {
			t.next[i].Store(math.MaxUint64)
		}
	}
	if pace == nil {
		t.renew.Store(math.MaxInt64)
	}
	return t
}

// The outcomes of one limit that was asked; they index tally.counts.
const (
	hadRoom = iota
	hadNone
	hadNoneUnenforced
	leftUndecided
	outcomes // how many there are
)

var outcomeNames = [outcomes]string{
	hadRoom: "allowed", hadNone: "denied", hadNoneUnenforced: "would_deny", leftUndecided: "undecided",
}

var ruleDesc = prometheus.NewDesc("weir_rule_limits_total",
	"Limits that checks were held against, by rule and result: allowed, denied, would_deny (no room, but not enforced), undecided (no node decided). "+
		"Checks that only look are not counted. A rule's series begins with its first check.",
	[]string{"domain", "rule", "result"}, nil)

func newTallies(r prometheus.Registerer, current func() *rules.Set, top *topkeys.Recorder) *tallies {
	t := &tallies{current: current, top: top}
	r.MustRegister(t)
	return t
}

// of returns the tallies of a set by the ranks of its rules.
func (t *tallies) of(set *rules.Set) []*tally {
	if s := t.state.Load(); s != nil && s.set == set {
		return s.byRank
	}
	return t.renew(set)
}

// renew makes the tallies of a set that has just come into force. Requests in progress with the last set
// count with its tallies.
func (t *tallies) renew(set *rules.Set) []*tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.state.Load()
	if old != nil && old.set == set {
		return old.byRank
	}
	type name struct{ domain, id string }
	kept := make(map[name]*tally)
	if old != nil {
		for _, one := range old.byRank {
			kept[name{one.rule.Domain, one.rule.ID}] = one
		}
	}
	s := &tallyState{set: set}
	current := set == t.current() // else it is the last one's turn no more
	var groups []*topkeys.Group
	if current {
		groups = t.groups(set)
	}
	for r := range set.Rules() {
		one := kept[name{r.Domain, r.ID}]
		if one == nil {
			var pace *topkeys.Pace
			if groups != nil {
				pace = groups[len(s.byRank)].NewPace()
			}
			one = newTally(r, pace)
		}
		s.byRank = append(s.byRank, one)
	}
	if current {
		t.state.Store(s)
	}
	return s.byRank
}

// RuleCounts is what became of the limits of one rule since the node was started, or since the rule was added.
type RuleCounts struct{ Allowed, Denied, WouldDeny, Undecided uint64 }

// CountsOf returns the counts of a rule in force, by its rank.
func (c *Checker) CountsOf(set *rules.Set, rank int) RuleCounts {
	one := c.tallies.of(set)[rank]
	return RuleCounts{
		Allowed: one.counts[hadRoom].Load(), Denied: one.counts[hadNone].Load(),
		WouldDeny: one.counts[hadNoneUnenforced].Load(), Undecided: one.counts[leftUndecided].Load(),
	}
}

// groups returns where the events of a set's rules are recorded; nil if they are not.
func (t *tallies) groups(set *rules.Set) []*topkeys.Group {
	if t.top == nil {
		return nil
	}
	var names []topkeys.Name
	for r := range set.Rules() {
		names = append(names, topkeys.Name{Domain: r.Domain, ID: r.ID})
	}
	return t.top.Assign(names)
}

// run is takes in a row with the same rule and outcome.
type run struct {
	tally   *tally
	outcome int
	first   int // index of the first one
	length  uint64
}

// CountLimits counts the takes of w by rule, except for those of peeks, and draws some for the lists of keys. Of many
// in a row it counts at once what is alike: a counter that all cores write to is slow.
func (c *Checker) CountLimits(w *Work) {
	byRank := c.tallies.of(w.Set)
	at := int64(0)
	if c.Top != nil {
		at = int64(c.Top.At(w.Start))
	}
	// Variables rather than a run: they stay in registers.
	var last *tally
	var lastOutcome, first int
	var length uint64
	begin := 0
	for i, end := range w.Ends {
		if !w.Groups[i].Peek {
			for j := begin; j < end; j++ {
				r := w.Matches[j].Rule
				if r == nil { // the request has brought the limit with it
					continue
				}
				t, outcome := byRank[r.Rank()], outcomeOf(&w.Takes[j])
				if t != last || outcome != lastOutcome {
					if last != nil {
						c.count(w, run{last, lastOutcome, first, length}, at)
					}
					last, lastOutcome, first, length = t, outcome, j, 0
				}
				length++
			}
		}
		begin = end
	}
	if last != nil {
		c.count(w, run{last, lastOutcome, first, length}, at)
	}
}

// count counts a run, whose call came at an instant.
func (c *Checker) count(w *Work, r run, at int64) {
	end := r.tally.counts[r.outcome].Add(r.length)
	if end >= r.tally.next[r.outcome].Load() || at >= r.tally.renew.Load() {
		c.draw(w, r, end, at)
	}
}

func outcomeOf(t *shard.Take) int {
	switch {
	case !Answered(t):
		return leftUndecided
	case t.Decision.Allowed:
		return hadRoom
	case t.Shadow:
		return hadNoneUnenforced
	}
	return hadNone
}

// Describe implements prometheus.Collector.
func (t *tallies) Describe(ch chan<- *prometheus.Desc) { ch <- ruleDesc }

// Collect implements prometheus.Collector.
func (t *tallies) Collect(ch chan<- prometheus.Metric) {
	for _, one := range t.of(t.current()) {
		var counts [outcomes]uint64
		var sum uint64
		for i := range counts {
			counts[i] = one.counts[i].Load()
			sum += counts[i]
		}
		if sum == 0 {
			continue
		}
		for i, n := range counts {
			ch <- prometheus.MustNewConstMetric(ruleDesc, prometheus.CounterValue, float64(n), one.rule.Domain, one.rule.ID, outcomeNames[i])
		}
	}
}
