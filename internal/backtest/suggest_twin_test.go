package backtest

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/rules"
)

// twinKey keeps every line of a key, and measures in the plainest way.
type twinKey struct {
	at, costs []int64
	statuses  []int
	agents    []string
}

// sliding returns the highest use of a sliding window, counted again from all lines at each of them.
func (k *twinKey) sliding(window int64) (need int64) {
	for i, now := range k.at {
		index := now / window
		current, previous := int64(0), new(big.Int)
		for j := range k.at[:i+1] {
			switch index - k.at[j]/window {
			case 0:
				current += k.costs[j]
			case 1:
				previous.Add(previous, big.NewInt(k.costs[j]))
			}
		}
		previous.Mul(previous, big.NewInt((index+1)*window-now)).Quo(previous, big.NewInt(window))
		need = max(need, current+previous.Int64())
	}
	return need
}

// bucket returns the highest level of a bucket that drains at a rate, in fractions.
func (k *twinKey) bucket(rate, window int64) (need int64) {
	level := new(big.Rat)
	for i, now := range k.at {
		if i > 0 {
			drained := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(now-k.at[i-1]), big.NewInt(rate)), big.NewInt(window))
			if level.Sub(level, drained); level.Sign() < 0 {
				level.SetInt64(0)
			}
		}
		level.Add(level, new(big.Rat).SetInt64(k.costs[i]))
		up := new(big.Int).Add(level.Num(), new(big.Int).Sub(level.Denom(), big.NewInt(1)))
		need = max(need, up.Quo(up, level.Denom()).Int64())
	}
	return need
}

// signs are those that are seen without the others.
func (k *twinKey) signs() (all []Sign) {
	programs, errors, gaps := 0, 0, make([]float64, 0, len(k.at))
	for i := range k.at {
		if strings.Contains(k.agents[i], "curl") {
			programs++
		}
		if k.statuses[i] >= 400 && k.statuses[i] < 500 && k.statuses[i] != 429 {
			errors++
		}
		if i > 0 {
			gaps = append(gaps, float64(k.at[i]-k.at[i-1])/1e6)
		}
	}
	if float64(programs) > float64(len(k.at))/2 {
		all = append(all, ByAgent)
	}
	if len(k.at) >= 10 && float64(errors) >= float64(len(k.at))/2 {
		all = append(all, ByErrors)
	}
	regular := false
	for half := range gapBins - 2 {
		low, within := math.Exp2(float64(half)/2), 0
		for _, g := range gaps {
			if g >= low && g < 2*low {
				within++
			}
		}
		regular = regular || len(gaps) >= 30 && float64(within) >= 0.9*float64(len(gaps))
	}
	if regular {
		all = append(all, ByRegular)
	}
	return all
}

// twinLog makes keys of several kinds, with costs, statuses and agents, and some lines that come late.
func twinLog(seed uint64) (log []byte, keys map[string]*twinKey) {
	r := rand.New(rand.NewPCG(seed, 5))
	type line struct {
		at   int64
		key  int
		cost int64
	}
	var lines []line
	for key := range 40 {
		at := int64(1_770_000_000_000 + r.IntN(600_000)) // in ms
		for range 1 + r.IntN(80) {
			lines = append(lines, line{at, key, int64(1 + r.IntN(1+key%4*10))})
			switch key % 5 {
			case 0:
				at += 1900 + int64(r.IntN(300))
			case 1:
				at += int64(r.ExpFloat64() * 20_000)
			default:
				at += int64(r.IntN(1 << r.IntN(18)))
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return int(a.at - b.at) })
	for range len(lines) / 50 {
		i := r.IntN(len(lines) - 1)
		lines[i], lines[i+1] = lines[i+1], lines[i]
	}
	keys = make(map[string]*twinKey)
	latest := int64(0)
	for _, l := range lines {
		latest = max(latest, l.at)
		agent, status := "Mozilla/5.0", 200+r.IntN(2)*(1+r.IntN(3))*100
		if l.key%7 == 0 || l.key%3 == 0 && r.IntN(2) == 0 {
			agent = "CuRL/8"
		}
		switch l.key % 6 {
		case 0:
			status = 429 - r.IntN(4)
		case 3: // denied by a limit, which is no sign
			status = 429
		}
		log = fmt.Appendf(log, "{\"ts\":%d,\"user\":\"u%d\",\"kb\":%d,\"status\":%d,\"user_agent\":%q}\n", l.at, l.key, l.cost, status, agent)
		name := fmt.Sprintf("user=u%d", l.key)
		if keys[name] == nil {
			keys[name] = new(twinKey)
		}
		k := keys[name]
		k.at, k.costs, k.statuses, k.agents = append(k.at, latest*1e6), append(k.costs, l.cost), append(k.statuses, status), append(k.agents, strings.ToLower(agent))
	}
	return log, keys
}

// What each key needs, and the signs that it shows by itself, are those of a twin that keeps every line.
func TestMeasuresAreThoseOfTheirTwin(t *testing.T) {
	set, err := rules.Parse("rules.yaml", []byte("domain: default\nrules: [{id: a, per: [user], cost: kb, limits: [{limit: 5, window: 1m}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	compared, signs := 0, make(map[Sign]int)
	for seed := range uint64(5) {
		log, keys := twinLog(seed)
		c := SuggestConfig{Config: Config{Format: JSON, Rules: set, Map: []Mapping{{Attribute: "kb", Field: "kb"}}}, Windows: []time.Duration{time.Minute, 7 * time.Second}}
		s, _ := suggestionOf(t, c, log)
		if len(s.rules[0].keys) != len(keys) {
			t.Fatalf("%d keys, want %d", len(s.rules[0].keys), len(keys))
		}
		for _, k := range s.rules[0].keys {
			twin := keys[k.text]
			for i, m := range s.measures {
				var want int64
				if m.rate == 0 {
					want = twin.sliding(int64(m.window))
				} else {
					want = twin.bucket(m.rate, int64(m.window))
				}
				if got := k.measured[i].need; got != want {
					t.Fatalf("seed %d: %s needs %d of %+v, want %d", seed, k.text, got, m.limit, want)
				}
				compared++
			}
			got := slices.DeleteFunc(slices.Clone(k.signs), func(s Sign) bool { return s == ByRate })
			if want := twin.signs(); !slices.Equal(got, want) {
				t.Errorf("seed %d: %s has the signs %v, want %v", seed, k.text, got, want)
			}
			for _, s := range got {
				signs[s]++
			}
		}
	}
	if compared < 5000 || signs[ByAgent] < 10 || signs[ByErrors] < 10 || signs[ByRegular] < 10 {
		t.Errorf("tries too little: %d needs, signs %v", compared, signs)
	}
}

// The sign of the rate goes by the keys without another sign. At most a tenth of them has it; more are a kind of callers.
func TestOutliers(t *testing.T) {
	keys := func(needs ...int64) (all []*keyStats) {
		for _, n := range needs {
			all = append(all, &keyStats{measured: []usage{{need: n}}})
		}
		return all
	}
	people := []int64{1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 8, 8, 9, 10, 10, 12, 14, 20, 20, 15}
	for _, c := range []struct {
		name string
		keys []*keyStats
		want int
		many int
	}{
		{"people", keys(people...), 0, 0},
		{"one", keys(append([]int64{900}, people...)...), 1, 0},
		{"a tenth", keys(append([]int64{900, 901}, people...)...), 2, 0},
		{"more than a tenth", keys(append([]int64{900, 901, 902}, people...)...), 0, 3},
		{"a tenth above those that come once", keys(append(slices.Repeat([]int64{1}, 90), slices.Repeat([]int64{10}, 10)...)...), 10, 0},
		{"two fifths above those that come once", keys(append(slices.Repeat([]int64{1}, 60), slices.Repeat([]int64{10}, 40)...)...), 0, 40},
		{"alike", keys(append([]int64{17}, slices.Repeat([]int64{4}, 30)...)...), 1, 0},
		{"not four times", keys(append([]int64{16}, slices.Repeat([]int64{4}, 30)...)...), 0, 0},
		{"too few", keys(1, 1, 1, 1, 1, 10_000), 0, 0},
	} {
		many := outliers(c.keys, 0)
		got := 0
		for _, k := range c.keys {
			got += len(k.signs)
		}
		if got != c.want || many != c.many {
			t.Errorf("%s: %d keys have the sign, and %d are too many, want %d and %d", c.name, got, many, c.want, c.many)
		}
	}
	// Keys with another sign are not among those that may be too many.
	all := keys(append([]int64{900, 900, 900, 900}, people...)...)
	for _, k := range all[:3] {
		k.signs = []Sign{ByAgent}
	}
	if many := outliers(all, 0); many != 0 || !slices.Contains(all[0].signs, ByRate) || !slices.Contains(all[3].signs, ByRate) {
		t.Errorf("%d are too many, and the first ones have the signs %v and %v", many, all[0].signs, all[3].signs)
	}
}
