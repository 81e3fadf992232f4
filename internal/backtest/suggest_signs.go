package backtest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Sign is why a key is taken for a machine.
type Sign string

// The signs. A key that has one is not among the well-behaved.
const (
	ByAgent   Sign = "agent"   // most of its lines have the agent of a program
	ByErrors  Sign = "errors"  // half of its lines or more are answered with an error that is the caller's
	ByRegular Sign = "regular" // nearly all gaps between its lines are about as long as each other
	ByRate    Sign = "rate"    // it needs far more than the keys without a sign
)

// From which values on signs are seen. People reload pages and mistype, so it takes some lines to tell.
const (
	errorLines   = 10  // with a status, at least
	errorShare   = 0.5 // of them
	regularGaps  = 30  // at least
	regularShare = 0.9 // of the gaps are within a factor of two
	rateKeys     = 20  // without another sign, at least: else far more than the others says nothing
	rateScore    = 3.5 // of the modified z-score
	rateFactor   = 4   // times the median, at least
	rateSpread   = 0.5 // doublings that the deviation is taken to be at least
	rateMost     = 10  // at most one key in so many has the sign: if more would, they are ordinary callers
)

// look finds the signs of a key that are seen without the others.
func (k *keyStats) look() {
	k.signs = k.signs[:0]
	if 2*k.programs > k.lines {
		k.signs = append(k.signs, ByAgent)
	}
	if k.judged >= errorLines && float64(k.errors) >= errorShare*float64(k.judged) {
		k.signs = append(k.signs, ByErrors)
	}
	if _, share, n := k.rhythm(); n >= regularGaps && share >= regularShare {
		k.signs = append(k.signs, ByRegular)
	}
}

// rhythm returns the two neighbouring bins that have the most gaps, by the first one, their share of all gaps, and how
// many gaps there are. Gaps below 1 ms have no length that could be seen, in a log of whole seconds no gap of less.
func (k *keyStats) rhythm() (bin int, share float64, n int) {
	best := 0
	for i, count := range k.gaps {
		n += int(count)
		if i == 0 || i+1 == len(k.gaps) {
			continue
		}
		if pair := int(count) + int(k.gaps[i+1]); pair > best {
			bin, best = i, pair
		}
	}
	return bin, float64(best) / float64(max(1, n)), n
}

// outliers gives those keys the sign of the rate whose need of a measure is far above the others'. The score is B.
// Iglewicz and D. Hoaglin's, "How to Detect and Handle Outliers" (1993), of the logarithms: 0.6745 * (x - median) / MAD.
// It returns how many keys without another sign are too many to have it: where most addresses come once, people with ten pages
// are far above the median.
func outliers(all []*keyStats, measure int) (tooMany int) {
	var needs []float64
	for _, k := range all {
		if len(k.signs) == 0 {
			needs = append(needs, logNeed(k, measure))
		}
	}
	if len(needs) < rateKeys {
		return 0
	}
	middle := median(needs)
	for i := range needs {
		needs[i] = math.Abs(needs[i] - middle)
	}
	deviation := max(median(needs), 0.6745*rateSpread)
	least := middle + max(math.Log2(rateFactor), rateScore*deviation/0.6745)
	alone := 0
	for _, k := range all {
		if len(k.signs) == 0 && logNeed(k, measure) > least {
			alone++
		}
	}
	if rateMost*alone > len(needs) {
		return alone
	}
	for _, k := range all {
		if logNeed(k, measure) > least {
			k.signs = append(k.signs, ByRate)
		}
	}
	return 0
}

// guessed reports whether only signs that people can have, too, take a key for a machine.
func (k *keyStats) guessed() bool {
	return len(k.signs) > 0 && !slices.Contains(k.signs, ByAgent) && !slices.Contains(k.signs, ByErrors)
}

func logNeed(k *keyStats, measure int) float64 {
	return math.Log2(float64(max(1, k.measured[measure].need)))
}

// median sorts the values.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// Machine is a key that is taken for a machine.
type Machine struct {
	Key   string `json:"key"`
	Lines int64  `json:"lines"`
	// Need is what it would have needed of a sliding window, in tokens: the first of the windows of the limits.
	Need    int64    `json:"need"`
	Signs   []Sign   `json:"signs"`
	Reasons []string `json:"reasons"` // a text for each sign
}

// machine says why a key is one.
func (k *keyStats) machine(measure int, typical int64) Machine {
	m := Machine{Key: k.text, Lines: k.lines, Need: k.measured[measure].need, Signs: k.signs}
	for _, s := range k.signs {
		m.Reasons = append(m.Reasons, k.reason(s, m.Need, typical))
	}
	return m
}

func (k *keyStats) reason(s Sign, need, typical int64) string {
	switch s {
	case ByAgent:
		return fmt.Sprintf("agent %q in %s of its lines", k.agent, shareText(k.programs, k.lines))
	case ByErrors:
		return fmt.Sprintf("%s of %d answers are errors of the caller", shareText(k.errors, k.judged), k.judged)
	case ByRegular:
		bin, share, n := k.rhythm()
		return fmt.Sprintf("%.0f%% of %d gaps are %s to %s long", 100*share, n, roundGap(bin), roundGap(bin+2))
	case ByRate:
		return fmt.Sprintf("needs %d, half of the well-behaved at most %d", need, typical)
	}
	return string(s)
}

// byLines sorts those with the most lines first.
func byLines(a, b *keyStats) int {
	return cmp.Or(cmp.Compare(b.lines, a.lines), cmp.Compare(a.text, b.text))
}
