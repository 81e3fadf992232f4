package linear

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/algorithms"
)

// yearly is the window of all limits, in days: a year, or a little less if one ends within the day.
var yearly = func() time.Duration {
	const day = 24 * time.Hour
	days := 365 * day
	for now := time.Duration(time.Now().UnixNano()); (now+day)%days < 2*day; {
		days -= day
	}
	return days
}()

// kind is a family of keys under the same rules.
type kind struct {
	name   string // the endpoint that its checks ask for
	limits []algorithms.Limit
	strict bool // its rule has durability: strict
	shared bool // the first limit is an organisation's, the others are of one user each, under rules of their own
	// spare is how many tokens may be left when a check of one token is denied, because nodes hold them. Above 0,
	// remaining tokens are not held to.
	spare int64
	// checks is how many are asked of one key, 0 for perKey.
	checks int
	// grid is 0 if all instants of the test are alike. Otherwise windows end within it, or tokens flow back, and of the instants
	// between a call and its answer the multiples of grid stand for all: one of them decides as any other does.
	grid time.Duration
}

func limitOf(a algorithms.Algorithm, limit, burst int64) algorithms.Limit {
	return algorithms.Limit{Algorithm: a, Limit: limit, Burst: burst, Window: int64(yearly)}
}

// kinds has every algorithm, alone and in groups.
func kinds() []*kind {
	fixed := limitOf(algorithms.FixedWindow, 60, 0)
	delayed := limitOf(algorithms.GCRA, 40, 50)
	delayed.MaxDelay = 10 * delayed.Window / delayed.Limit // ten tokens may be owed
	return []*kind{
		{name: "sliding", limits: []algorithms.Limit{limitOf(algorithms.SlidingWindow, 60, 0)}},
		{name: "fixed", limits: []algorithms.Limit{fixed}},
		{name: "bucket", limits: []algorithms.Limit{limitOf(algorithms.TokenBucket, 30, 60)}},
		{name: "gcra", limits: []algorithms.Limit{limitOf(algorithms.GCRA, 70, 0)}},
		{name: "buckets", limits: []algorithms.Limit{limitOf(algorithms.SlidingWindowBuckets, 60, 0)}},
		{name: "log", limits: []algorithms.Limit{limitOf(algorithms.SlidingWindowLog, 60, 0)}},
		{name: "leaky", limits: []algorithms.Limit{limitOf(algorithms.LeakyBucket, 20, 60)}},
		{name: "delayed", limits: []algorithms.Limit{delayed}},
		{name: "strict", limits: []algorithms.Limit{limitOf(algorithms.SlidingWindow, 60, 0)}, strict: true},
		{name: "pair", limits: []algorithms.Limit{fixed, limitOf(algorithms.TokenBucket, 30, 55)}},
		{name: "shared", shared: true, limits: []algorithms.Limit{
			limitOf(algorithms.TokenBucket, 60, 0), limitOf(algorithms.SlidingWindow, 25, 0), limitOf(algorithms.SlidingWindow, 25, 0), limitOf(algorithms.SlidingWindow, 25, 0),
		}},
	}
}

// hot is a kind whose tokens are lent to nodes.
func hot() *kind {
	const limit = 1000
	return &kind{name: "hot", limits: []algorithms.Limit{limitOf(algorithms.FixedWindow, limit, 0)}, spare: limit / 200, checks: 900}
}

// turning has the algorithms whose decisions change at known instants only, with windows that end within the test.
func turning() []*kind {
	const window = 3 * time.Second
	const cuts = 6
	short := func(a algorithms.Algorithm) []algorithms.Limit {
		return []algorithms.Limit{{Algorithm: a, Limit: 60, Window: int64(window)}}
	}
	all := []*kind{
		{name: "turning-fixed", limits: short(algorithms.FixedWindow), grid: window},
		// A token of the window before weighs less by one at instants that are at least 50 ms apart.
		{name: "turning-sliding", limits: short(algorithms.SlidingWindow), grid: time.Millisecond},
		{name: "turning-buckets", limits: short(algorithms.SlidingWindowBuckets), grid: window / cuts},
	}
	all[2].limits[0].Buckets = cuts
	for _, k := range all {
		k.checks = 300 // in three or four windows
	}
	return all
}

// draining has the meters, whose tokens flow back within the test, one in each interval. An answer depends on how much
// time has passed since a grant that came to an empty bucket, so the model puts both at multiples of grid. It may err there by two of
// them, and finds one for each later check, less than clockError away, at which as many tokens have flowed back as at the true instant.
func draining() []*kind {
	const interval = 50 * time.Millisecond
	const limit = 60
	of := func(name string, a algorithms.Algorithm, burst int64) *kind {
		l := algorithms.Limit{Algorithm: a, Limit: limit, Window: int64(limit * interval), Burst: burst}
		return &kind{name: name, limits: []algorithms.Limit{l}, grid: interval / 10, checks: 300}
	}
	return []*kind{of("draining-bucket", algorithms.TokenBucket, 40), of("draining-gcra", algorithms.GCRA, 0), of("draining-leaky", algorithms.LeakyBucket, 50)}
}

// Bursts are when clients ask for keys of logging: the times are counted from the multiples of burstEvery in Unix time.
const (
	burstEvery  = 2 * time.Second
	burstBegins = 100 * time.Millisecond
	burstEnds   = 500 * time.Millisecond
	burstGrace  = burstEvery / 2 // until when all checks are answered
)

// logging has the algorithm that remembers each grant. Its window is two and a half times as long as it is from burst to burst, so grants leave
// it while no check is decided, and the multiple of burstEvery before a check stands for the instant at which it is.
func logging() []*kind {
	l := algorithms.Limit{Algorithm: algorithms.SlidingWindowLog, Limit: 60, Window: int64(5 * burstEvery / 2)}
	return []*kind{{name: "logging", limits: []algorithms.Limit{l}, grid: burstEvery, checks: 300}}
}

// rulesText returns the rules of kinds as nodes read them.
func rulesText(all []*kind) string {
	var b strings.Builder
	b.WriteString("domain: default\nrules:\n")
	for _, k := range all {
		if k.shared {
			writeRule(&b, k.name+"-org", k, "org", k.limits[:1])
			writeRule(&b, k.name+"-user", k, "user", k.limits[1:2])
			continue
		}
		writeRule(&b, k.name, k, "user", k.limits)
	}
	return b.String()
}

func writeRule(b *strings.Builder, id string, k *kind, per string, limits []algorithms.Limit) {
	fmt.Fprintf(b, "  - id: %s\n    when: {endpoint: %s}\n    per: [%s]\n", id, k.name, per)
	if k.strict {
		b.WriteString("    durability: strict\n")
	}
	if d := limits[0].MaxDelay; d > 0 {
		fmt.Fprintf(b, "    max_delay: %dh\n", time.Duration(d)/time.Hour)
	}
	b.WriteString("    limits:\n")
	for _, l := range limits {
		fmt.Fprintf(b, "      - {limit: %d, window: %ds, algorithm: %v", l.Limit, time.Duration(l.Window)/time.Second, l.Algorithm)
		if l.Buckets > 0 {
			fmt.Fprintf(b, ", buckets: %d", l.Buckets)
		}
		if l.Burst > 0 {
			fmt.Fprintf(b, ", burst: %d", l.Burst)
		}
		b.WriteString("}\n")
	}
}
