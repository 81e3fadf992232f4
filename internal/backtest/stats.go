package backtest

import (
	"cmp"
	"math"
	"slices"

	"github.com/weirlimit/weir/rules"
)

// Bounds of what a report keeps.
const (
	topKeys     = 4096 // counted per rule before the least are dropped
	nearKeys    = 10   // on each side of a limit
	seriesParts = 240  // of the time from the first to the last line
	rateBins    = 48
	binsPerTwo  = 4 // of a doubling
)

// countedAs says among what a rule has counted a check.
type countedAs uint8

const (
	notCounted      countedAs = iota
	countedAsShadow           // among WouldDeny
	countedAsDenied           // among Denied
)

// ruleStats is what a rule did.
type ruleStats struct {
	rule              *rules.Rule
	Checks            int64 // that it applied to
	Denied, WouldDeny int64 // checks; those that it would have denied if it were enforced
	keys, deniedKeys  int64 // counters; a key that comes back after its counter has expired is one more
	limits            []limitStats
	top               heavy
	last              int64     // the number of the last check that the rule applied to
	counted           countedAs // that check
}

type limitStats struct {
	Denied int64
	rates  histogram
	above  nearest // peaks above the limit
	below  nearest // peaks up to the limit
}

func newRuleStats(r *rules.Rule) *ruleStats {
	s := &ruleStats{rule: r, limits: make([]limitStats, len(r.Limits)), top: heavy{most: topKeys}}
	return s
}

// applies counts a check, once for all of its parts.
func (s *ruleStats) applies(check int64) {
	if s.last != check {
		s.Checks++
		s.last, s.counted = check, notCounted
	}
}

// ended takes what is known of a counter into the report.
func (s *ruleStats) ended(c *counter) {
	c.endWindow()
	l := &s.limits[c.limit]
	if c.peak > c.cap {
		l.above.offer(c.text, c.peak, c.peak-c.cap)
	} else if c.peak > 0 {
		l.below.offer(c.text, c.peak, c.cap-c.peak)
	}
}

// histogram counts windows of keys by the tokens asked for, as a share of the limit. A bin is a quarter of a doubling;
// bin i ends at limit * 2^((i-binAtLimit)/4).
type histogram struct {
	bins  [rateBins]int64
	total int64
}

// binAtLimit is the last bin of windows within the limit.
const binAtLimit = 31

func (h *histogram) add(asked, limit int64) {
	h.total++
	h.bins[binOf(asked, limit)]++
}

func binOf(asked, limit int64) int {
	if limit <= 0 {
		return rateBins - 1
	}
	bin := binAtLimit + int(math.Ceil(binsPerTwo*math.Log2(float64(asked)/float64(limit))))
	if asked <= limit {
		bin = min(bin, binAtLimit)
	} else {
		bin = max(bin, binAtLimit+1)
	}
	return max(0, min(bin, rateBins-1))
}

// binEnd is where a bin ends, as a share of the limit.
func binEnd(i int) float64 { return math.Exp2(float64(i-binAtLimit) / binsPerTwo) }

// NearKey is a key and the tokens that it asked for in its fullest window.
type NearKey struct {
	Key  string `json:"key"`
	Peak int64  `json:"peak"`

	distance int64
}

// nearest keeps the keys that are nearest to a limit, by distance and key.
type nearest struct{ keys []NearKey }

func (n *nearest) offer(key string, peak, distance int64) {
	if len(n.keys) == nearKeys && distance >= n.keys[nearKeys-1].distance {
		return
	}
	k := NearKey{Key: key, Peak: peak, distance: distance}
	at, _ := slices.BinarySearchFunc(n.keys, k, func(a, b NearKey) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.Key, b.Key))
	})
	n.keys = slices.Insert(n.keys, at, k)
	n.keys = n.keys[:min(len(n.keys), nearKeys)]
}

// heavy counts by key, and keeps those with the highest counts. It is exact up to 2 * most keys; beyond, counts are too
// low by at most missed: the summary of Misra and Gries, cut as Agarwal et al. do in "Mergeable Summaries" (2012).
type heavy struct {
	most   int
	counts map[uint64]*heavyKey
	missed int64
}

type heavyKey struct {
	text  string
	count int64
}

func (h *heavy) add(key uint64, text string, n int64) {
	if k := h.counts[key]; k != nil {
		k.count += n
		return
	}
	if h.counts == nil {
		h.counts = make(map[uint64]*heavyKey)
	}
	h.counts[key] = &heavyKey{text, n}
	if len(h.counts) > 2*h.most {
		h.cut()
	}
}

// cut takes the count of the first key that goes from all.
func (h *heavy) cut() {
	counts := make([]int64, 0, len(h.counts))
	for _, k := range h.counts {
		counts = append(counts, k.count)
	}
	slices.SortFunc(counts, func(a, b int64) int { return cmp.Compare(b, a) })
	least := counts[h.most]
	h.missed += least
	for key, k := range h.counts {
		if k.count -= least; k.count <= 0 {
			delete(h.counts, key)
		}
	}
}

// TopKey is a key and how many of its checks were denied.
type TopKey struct {
	Key    string `json:"key"`
	Denied int64  `json:"denied"`
}

// list returns the n keys with the highest counts.
func (h *heavy) list(n int) []TopKey {
	all := make([]TopKey, 0, len(h.counts))
	for _, k := range h.counts {
		all = append(all, TopKey{k.text, k.count})
	}
	slices.SortFunc(all, func(a, b TopKey) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(n, len(all))]
}

// Moment is a part of the time of a log.
type Moment struct {
	At      int64 `json:"at"` // its begin, in Unix seconds
	Checks  int64 `json:"checks"`
	Denied  int64 `json:"denied"`
	Against int64 `json:"denied_against,omitempty"`
}

// series counts checks over time, in parts of equal length that get longer as the log does.
type series struct {
	step  int64 // of a part, in nanoseconds
	begin int64 // of the first part, a multiple of step
	parts []Moment
}

func (s *series) add(now int64, one, against verdict) {
	if s.step == 0 {
		s.step = second
		s.begin = now - now%s.step
	}
	for (now-s.begin)/s.step >= seriesParts {
		s.double()
	}
	i := max(0, int((now-s.begin)/s.step))
	for len(s.parts) <= i {
		s.parts = append(s.parts, Moment{})
	}
	p := &s.parts[i]
	p.Checks++
	if one == denied {
		p.Denied++
	}
	if against == denied {
		p.Against++
	}
}

// double makes each two parts one.
func (s *series) double() {
	step := 2 * s.step
	begin := s.begin - s.begin%step
	var parts []Moment
	for i, p := range s.parts {
		j := int((s.begin + int64(i)*s.step - begin) / step)
		for len(parts) <= j {
			parts = append(parts, Moment{})
		}
		q := &parts[j]
		q.Checks, q.Denied, q.Against = q.Checks+p.Checks, q.Denied+p.Denied, q.Against+p.Against
	}
	s.step, s.begin, s.parts = step, begin, parts
}

// list returns the parts with their instants.
func (s *series) list() []Moment {
	all := slices.Clone(s.parts)
	for i := range all {
		all[i].At = (s.begin + int64(i)*s.step) / second
	}
	return all
}
