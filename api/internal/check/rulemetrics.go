package check

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// tallies counts what became of the limits of each rule, which is what limits are
// tuned by. There are as many as the rules in force.
type tallies struct {
	current func() *rules.Set
	state   atomic.Pointer[tallyState]
	mu      sync.Mutex // held while state is replaced
}

// tallyState belongs to one set. A rule that stays keeps its tally.
type tallyState struct {
	set    *rules.Set
	byRank []*tally
}

// tally is what became of one rule's limits. It fills a cache line, so that rules do
// not wait for each other.
type tally struct {
	rule   *rules.Rule
	counts [outcomes]atomic.Uint64
	_      [64 - 8 - 8*outcomes]byte
}

// The outcomes of one limit that was asked; they index tally.counts.
const (
	hadRoom = iota
	hadNone
	hadNoneUnenforced
	notAnswered
	outcomes // how many there are
)

var outcomeNames = [outcomes]string{
	hadRoom: "allowed", hadNone: "denied", hadNoneUnenforced: "would_deny", notAnswered: "unanswered",
}

var ruleDesc = prometheus.NewDesc("weir_rule_limits_total",
	"Limits that checks were held against, by rule and result: allowed, denied, would_deny (no room, but not enforced), unanswered (no node decided). "+
		"Checks that only look are not counted. A rule's series begins with its first check.",
	[]string{"domain", "rule", "result"}, nil)

func newTallies(r prometheus.Registerer, current func() *rules.Set) *tallies {
	t := &tallies{current: current}
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
	for r := range set.Rules() {
		one := kept[name{r.Domain, r.ID}]
		if one == nil {
			one = &tally{rule: r}
		}
		s.byRank = append(s.byRank, one)
	}
	if set == t.current() { // else it is the last one's turn no more
		t.state.Store(s)
	}
	return s.byRank
}

// CountLimits counts the takes of w by rule, except for those of peeks. Of many in a row it counts at once what
// is alike: a counter that all cores write to is slow.
func (c *Checker) CountLimits(w *Work) {
	byRank := c.tallies.of(w.Set)
	var last *atomic.Uint64
	var alike uint64
	begin := 0
	for i, end := range w.Ends {
		if !w.Groups[i].Peek {
			for j := begin; j < end; j++ {
				if w.Matches[j].Rule == nil { // the request has brought the limit with it
					continue
				}
				count := &byRank[w.Matches[j].Rule.Rank()].counts[outcomeOf(&w.Takes[j])]
				if count != last && last != nil {
					last.Add(alike)
					alike = 0
				}
				last = count
				alike++
			}
		}
		begin = end
	}
	if last != nil {
		last.Add(alike)
	}
}

func outcomeOf(t *shard.Take) int {
	switch {
	case !Answered(t):
		return notAnswered
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
