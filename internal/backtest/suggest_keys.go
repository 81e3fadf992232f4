package backtest

import (
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"
)

// population has the keys of a rule. If there are too many it has a sample of them: those whose hash begins with level
// zero bits. A key of the sample has been in it since its first line, so what is known of it is exact. This is P. Gibbons,
// "Distinct Sampling for Highly-Accurate Answers to Distinct Values Queries and Event Reports" (VLDB 2001). The hash is
// keyed with a secret, so a log cannot choose its sample.
type population struct {
	rule  *rules.Rule
	keys  map[uint64]*keyStats // by ring.Key.Lo
	level int
	lines int64 // of all keys
}

func (p *population) samples(hash uint64) bool { return bits.LeadingZeros64(hash) >= p.level }

// halve drops about half of the keys, and returns how many.
func (p *population) halve() int {
	before := len(p.keys)
	p.level++
	for hash := range p.keys {
		if !p.samples(hash) {
			delete(p.keys, hash)
		}
	}
	return before - len(p.keys)
}

// measure is a limit that is never reached: what is used of it is what a key needs.
type measure struct {
	limit  algorithms.Limit
	window time.Duration
	rate   int64 // of a token bucket, in tokens per window; 0 for a sliding window
}

// shownWindows are measured in addition to those of the limits.
var shownWindows = []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}

// rates of token buckets that are tried, in tokens per window.
var rates = []int64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000}

// measuresOf returns sliding windows, by length, and for each window of a limit a token bucket of each rate. What bucket
// a rate needs is R. Cruz' (sigma, rho) of a flow, "A calculus for network delay" (1991).
func measuresOf(windows []time.Duration) (all []measure) {
	shown := append(slices.Clone(shownWindows), windows...)
	slices.Sort(shown)
	for _, w := range slices.Compact(shown) {
		all = append(all, measure{window: w, limit: algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: algorithms.MaxLimit, Window: int64(w)}})
	}
	for _, w := range windows {
		for _, rate := range rates {
			all = append(all, measure{window: w, rate: rate, limit: algorithms.Limit{
				Algorithm: algorithms.TokenBucket, Limit: rate, Burst: algorithms.MaxLimit, Window: int64(w),
			}})
		}
	}
	return all
}

// beyond is the need of a key that no limit is high enough for.
const beyond = algorithms.MaxLimit + 1

// usage is what one key has used of a measure. The steps are those of a node, so a limit of need never denies this
// key, and a lower one does: what a counter has used does not depend on its limit until that denies.
type usage struct {
	state algorithms.State
	need  int64 // tokens of limit or burst, at most beyond
}

func (m *usage) add(l *algorithms.Limit, now, cost int64) {
	var d algorithms.Decision
	next := algorithms.StepInto(&d, l, m.state, now, cost)
	if !d.Allowed {
		m.need = beyond
		return
	}
	m.state, m.need = next, max(m.need, algorithms.MaxLimit-d.Remaining)
}

// gapBins is how many lengths of gaps between lines are told apart, two for each doubling: the first one has those below
// 1 ms, and the last one those of 12 minutes and more.
const gapBins = 40

// keyStats is what is known of one key.
type keyStats struct {
	text     string
	lines    int64
	judged   int64 // lines that have a status
	errors   int64 // lines whose status is the caller's fault
	programs int64 // lines whose agent is that of a program
	agent    string
	last     int64
	gaps     [gapBins]uint16
	measured []usage
	signs    []Sign
}

// note takes in what a line says, except for its cost.
func (k *keyStats) note(r *record, known *agents, now int64) {
	if k.lines > 0 {
		k.gap(now - k.last)
	}
	k.lines++
	k.last = now
	if len(r.status) == 3 {
		k.judged++
		if isCallersFault(r.status) {
			k.errors++
		}
	}
	if name := known.program(r.agent); name != "" {
		k.programs++
		k.agent = name
	}
}

// isCallersFault reports whether a status is of 400 to 499, except 429: that is what a limit answers.
func isCallersFault(status string) bool { return status[0] == '4' && status != "429" }

// gap counts a gap. If a bin is full all are halved, which keeps their shares.
func (k *keyStats) gap(length int64) {
	bin := gapBin(length)
	if k.gaps[bin] == math.MaxUint16 {
		for i := range k.gaps {
			k.gaps[i] /= 2
		}
	}
	k.gaps[bin]++
}

func gapBin(length int64) int {
	if length < int64(time.Millisecond) {
		return 0
	}
	return min(gapBins-1, 1+int(2*math.Log2(float64(length)/float64(time.Millisecond))))
}

// gapOf is where a bin begins.
func gapOf(bin int) time.Duration {
	return time.Duration(math.Exp2(float64(bin-1)/2) * float64(time.Millisecond))
}

// programNames are parts of the agents that programs name themselves by, in lower case.
var programNames = []string{
	"bot", "crawl", "spider", "scrap", "slurp", "curl/", "wget/", "python-", "python/", "aiohttp", "httpx/", "go-http-client", "java/", "apache-httpclient",
	"libwww", "perl/", "ruby", "php/", "guzzle", "axios/", "node-fetch", "headless", "phantomjs", "selenium", "postman", "insomnia", "nikto", "sqlmap", "nmap", "zgrab",
}

// Bounds of what is kept of agents.
const (
	maxAgentBytes = 256 // bytes of one
	maxAgents     = 1024
)

// agents remembers which agents are programs: most lines have one that was there before.
type agents struct{ known map[string]string }

// program returns the agent as text if it names a program, else nothing.
func (a *agents) program(agent string) string {
	if len(agent) > maxAgentBytes {
		agent = agent[:maxAgentBytes]
	}
	if name, found := a.known[agent]; found {
		return name
	}
	if len(a.known) >= maxAgents || a.known == nil {
		a.known = make(map[string]string)
	}
	name, lower := "", strings.ReplaceAll(strings.ToLower(agent), "cubot", "") // which makes telephones
	if slices.ContainsFunc(programNames, func(part string) bool { return strings.Contains(lower, part) }) {
		name = strings.ToValidUTF8(strings.Clone(agent), "?")
	}
	a.known[strings.Clone(agent)] = name
	return name
}
