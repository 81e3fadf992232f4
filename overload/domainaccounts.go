package overload

import (
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"
)

// Accounts in accounts.all. Those with a weight follow.
const (
	hashedAccounts = 1021 // which domains choose by a hash, so that memory and time are bounded
	withoutRules   = 1021 // of all domains that have no rules: invented names share it
	newConns       = 1022 // of calls on connections that have not asked for a domain yet
	firstWeighted  = 1023
)

const (
	drainPart  = 0.5             // of what the node could decide: while its queue drains, domains have that part that ask for less than theirs
	forgetting = 2 * time.Second // in which the rate falls of what the node decides
	maxMean    = 64              // calls that a call is worth at most
	idleRate   = 1e-3
)

// account is what calls of a domain ask for. Calls change the first fields, and one goroutine swaps them at each probe.
type account struct {
	calls  atomic.Int64  // that were read, or will be, since the last probe
	work   atomic.Int64  // of these, in perCall parts of a call
	unread atomic.Int64  // calls that were refused unread
	below  atomic.Uint64 // of each 2^32 draws so many are accepted

	weight float64
	// Smoothed, per second:
	callRate, workRate float64 // of calls that were read
	asked              float64 // work in calls, also of those that were refused unread
}

// accounts divides the work that a late node has time for among domains (ADR 36). Calls may be counted concurrently; observe, divide and
// reset are for one goroutine. Make it with newAccounts.
type accounts struct {
	seed     maphash.Seed // a secret of the process: no domain can be named to share the account of another one
	weighted map[string]int
	all      []account
	answered atomic.Int64 // work of calls that were answered since the last probe, in perCall parts of a call

	decided float64  // smoothed, calls per second
	refused float64  // likewise, calls that were refused unread, without their work
	scratch []demand // for divide
}

// newAccounts gives each domain of weights an account of its own. Others have the weight 1.
func newAccounts(weights map[string]float64) *accounts {
	a := &accounts{seed: maphash.MakeSeed(), weighted: make(map[string]int, len(weights)), all: make([]account, firstWeighted+len(weights))}
	next := firstWeighted
	for domain, weight := range weights {
		a.weighted[domain] = next
		a.all[next].weight = weight
		next++
	}
	for i := range a.all[:firstWeighted] {
		a.all[i].weight = 1
	}
	a.scratch = make([]demand, 0, len(a.all))
	a.reset()
	return a
}

// of returns the account of a domain.
func (a *accounts) of(domain string, hasRules bool) int {
	if i, ok := a.weighted[domain]; ok {
		return i
	}
	if !hasRules {
		return withoutRules
	}
	return int(maphash.String(a.seed, domain) % hashedAccounts)
}

// count counts calls and their work, in perCall parts of a call. Both are below 0 where they were counted in another account before.
func (a *accounts) count(i, calls, work int) {
	a.all[i].calls.Add(int64(calls))
	a.all[i].work.Add(int64(work))
}

// accepts reports whether a call of an account is accepted that has drawn that number below 2^32.
func (a *accounts) accepts(i int, draw uint64) bool { return draw < a.all[i].below.Load() }

// reset forgets what was counted, and accepts all.
func (a *accounts) reset() {
	for i := range a.all {
		one := &a.all[i]
		one.calls.Store(0)
		one.work.Store(0)
		one.unread.Store(0)
		one.below.Store(acceptAll)
		one.callRate, one.workRate, one.asked = 0, 0, 0
	}
	a.answered.Store(0)
	a.decided, a.refused = 0, 0
}

// observe brings rates up to date after a probe. It returns the work of calls that were refused unread since the last one, in calls: each
// is worth as much as those of its account that were read.
func (a *accounts) observe(passed time.Duration) (unread float64) {
	if passed <= 0 {
		return 0
	}
	seconds := passed.Seconds()
	smooth := 1 - math.Exp(-seconds/smoothing.Seconds())
	a.observeDecided(float64(a.answered.Swap(0))/perCall/seconds, seconds)
	refusals := 0.0
	for i := range a.all {
		one := &a.all[i]
		calls, work, refused := take(&one.calls), take(&one.work)/perCall, take(&one.unread)
		if calls == 0 && work == 0 && refused == 0 && one.asked < idleRate {
			one.callRate, one.workRate, one.asked = 0, 0, 0
			continue
		}
		one.callRate += smooth * (calls/seconds - one.callRate)
		one.workRate += smooth * (work/seconds - one.workRate)
		refusals += refused
		refused *= one.mean()
		unread += refused
		one.asked = max(0, one.asked+smooth*((work+refused)/seconds-one.asked))
	}
	a.refused += smooth * (refusals/seconds - a.refused)
	return unread
}

// observeDecided brings the rate of decided work up to date. It falls slowly: while the queue drains there is less to decide than the node
// could, and refusals take time.
func (a *accounts) observeDecided(rate, seconds float64) {
	within := smoothing
	if rate < a.decided {
		within = forgetting
	}
	a.decided += (1 - math.Exp(-seconds/within.Seconds())) * (rate - a.decided)
}

// take returns what was counted, and begins again.
func take(n *atomic.Int64) float64 {
	if n.Load() == 0 { // most accounts are idle, and this costs less
		return 0
	}
	return float64(n.Swap(0))
}

// mean is what a call of the account is worth, in calls.
func (o *account) mean() float64 {
	if o.callRate < idleRate {
		return 1
	}
	return min(max(1, o.workRate/o.callRate), maxMean)
}

// divide has calls accepted such that their work is this share of what is asked for. While the queue drains those domains go on that ask
// for less than their part, and others have hardly any call accepted. It returns the share of all work that is accepted then.
func (a *accounts) divide(share float64, draining bool) float64 {
	demands, asked := a.scratch[:0], 0.0
	for i := range a.all {
		if one := &a.all[i]; one.asked > 0 {
			demands = append(demands, demand{one.asked, one.weight})
			asked += one.asked
		}
	}
	work := share * asked
	if draining { // refusals take time, too, in which the node could decide something
		work = drainPart * (a.decided + perRefusal*a.refused)
	}
	level, accepted := math.Inf(1), 0.0
	if draining || share < 1 {
		level = fairLevel(demands, work)
	}
	for i := range a.all {
		one := &a.all[i]
		part := 1.0
		if d := (demand{one.asked, one.weight}); d.work > d.weight*level {
			part = max(leastShare, d.most(level)/d.work)
			if draining {
				part = leastShare
			}
		}
		one.below.Store(uint64(part * acceptAll))
		accepted += part * one.asked
	}
	if asked == 0 {
		return share
	}
	return accepted / asked
}

// Conn remembers which domains a connection has asked for last. The zero value has asked for none. It is safe for concurrent use.
type Conn struct {
	last atomic.Uint64 // four numbers of accounts, each plus 1, in 16 bits each; the newest is the lowest
}

// newest returns the account of the domain that the connection has asked for last. A connection that is nil is always a new one.
func (c *Conn) newest() (account int) {
	if c == nil {
		return newConns
	}
	if n := c.last.Load() & math.MaxUint16; n > 0 {
		return int(n) - 1
	}
	return newConns
}

// remember puts an account first. Of two calls at once one may be forgotten.
func (c *Conn) remember(account int) {
	if c == nil {
		return
	}
	now, before := uint64(account+1), c.last.Load()
	if before&math.MaxUint16 == now {
		return
	}
	after, places := now, 1
	for rest := before; rest > 0 && places < 4; rest >>= 16 {
		if one := rest & math.MaxUint16; one != now {
			after |= one << (16 * places)
			places++
		}
	}
	c.last.Store(after)
}

// accepts reports whether a call on the connection is accepted before it is read: by the highest share of the domains that the connection
// has asked for.
func (c *Conn) accepts(a *accounts, draw uint64) bool {
	if c == nil || c.last.Load() == 0 {
		return a.accepts(newConns, draw)
	}
	for rest := c.last.Load(); rest > 0; rest >>= 16 {
		if a.accepts(int(rest&math.MaxUint16)-1, draw) {
			return true
		}
	}
	return false
}
