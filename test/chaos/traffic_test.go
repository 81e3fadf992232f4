package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// The traffic: every tick a batch, from the nodes in turn, without waiting for answers. A traffic of its own keys has its own pace.
const (
	mixedTick = 10 * time.Millisecond
	mixedSize = 20               // of a batch: 2,000 checks a second
	patience  = 10 * time.Second // of a caller; a check not answered by then counts as an error
	inFlight  = 2000             // batches, at most
)

// askedTwice is how long a check takes at least that is asked again elsewhere, although it may be counted
// where it was asked first: a standby waits that long for a relay.
const askedTwice = 80 * time.Millisecond

// enoughPace is how many of its checks the traffic must at least have been able to ask in time, as a share: else the machine
// is so busy that waiting is no sign of anything.
const enoughPace = 0.97

// Kinds of keys. All limits are of a year.
const (
	spentKeys, spentLimit = 10_000, 10 // used up before anything happens
	slowKeys, slowLimit   = 300, 100   // asked for all the time, and used up at the end
	briskLimit, briskAsks = 20, 30     // used up in about a second, one after the other
	busyLimit, busyAsks   = 2000, 2600 // asked for in bursts, so that tokens are lent: half a percent of the limit
	briskAtOnce           = 16
	busyEvery             = 5 // batches; it is about one busy key as a whole
)

const rulesText = `domain: default
rules:
  - {id: spent, per: [spent], limits: [{limit: 10, window: 365d}]}
  - {id: slow, per: [slow], limits: [{limit: 100, window: 365d}]}
  - {id: brisk, per: [brisk], limits: [{limit: 20, window: 365d}]}
  - {id: busy, per: [busy], limits: [{limit: 2000, window: 365d}]}
  - {id: many, per: [many], limits: [{limit: 100, window: 365d}]}
`

func writeRules(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(rulesText), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func request(key string, tokens int) *weirv1.RateLimitRequest {
	kind, name, _ := strings.Cut(key, "-")
	return &weirv1.RateLimitRequest{IdentifierType: kind, Identifier: name, TokensRequested: int64(tokens)}
}

// traffic is the load, and what its callers were told.
type traffic struct {
	t      *testing.T
	ledger *ledger
	stop   func() // ends it, and waits for the answers that are due

	lenient bool // whether undecided answers are allowed

	tick time.Duration   // between two batches
	size int             // of a batch; 1 is a call for one check
	draw func() []string // the keys of the next batch, with the ledger told of them

	mu      sync.Mutex
	nodes   []*process.Node // that are asked, in turn
	samples []sample
	firsts  []string    // errors, the first few
	ticks   []time.Time // when batches were sent

	underWay map[string]*sync.WaitGroup // batches by the id of the node that is asked; more only while mu is held

	// Owned by the goroutine that asks.
	turn      int
	brisk     [briskAtOnce]int // how often each was asked for
	names     [briskAtOnce]int // their numbers
	nextBrisk int
	busy      int // how often it was asked for
	which     int // its number
}

// kinds of sources there are.
const kinds = int(weirv1.Source_SOURCE_PROVISIONAL) + 1

// sample is what became of one batch.
type sample struct {
	asked   time.Time
	took    time.Duration
	node    string
	sources [kinds]int // of its checks
	err     bool
	refused bool // because a node had no time for it
}

// startTraffic uses up the keys that are to be used up, and has the nodes asked until the
// traffic is stopped.
func (s *stage) startTraffic() *traffic {
	s.t.Helper()
	s.traffic = (&traffic{t: s.t, nodes: s.nodes}).start()
	return s.traffic
}

// startLenientTraffic is startTraffic with undecided answers allowed.
func (s *stage) startLenientTraffic() *traffic {
	s.t.Helper()
	s.traffic = (&traffic{t: s.t, nodes: s.nodes, lenient: true}).start()
	return s.traffic
}

func (f *traffic) start() *traffic {
	f.t.Helper()
	f.tick, f.size, f.draw = mixedTick, mixedSize, f.mixed
	f.ledger, f.nextBrisk = newLedger(), briskAtOnce
	for i := range f.names {
		f.names[i] = i
	}
	f.spend()
	return f.begin()
}

// begin has the nodes asked.
func (f *traffic) begin() *traffic {
	f.underWay = make(map[string]*sync.WaitGroup)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.run(ctx) })
	f.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	f.t.Cleanup(f.stop)
	return f
}

// spend uses up the keys that are to stay so.
func (f *traffic) spend() {
	f.t.Helper()
	const batch = 500
	for first := 0; first < spentKeys; first += batch {
		keys := make([]string, batch)
		reqs := make([]*weirv1.RateLimitRequest, batch)
		for i := range keys {
			keys[i] = fmt.Sprintf("spent-%d", first+i)
			reqs[i] = request(keys[i], spentLimit)
			f.ledger.ask(keys[i], spentLimit)
		}
		answers, refused := f.checkBatch(f.nodes[first/batch%len(f.nodes)], reqs)
		for i, a := range answers {
			switch granted := a.GetAllowed() && decided(a.GetSource()); {
			case granted:
				f.ledger.grantBy(a.GetSource(), keys[i], spentLimit, time.Now())
			case f.lenient, refused: // it may be counted, but late
				f.ledger.lose(keys[i])
			default:
				f.t.Fatalf("%s is to be used up: %v", keys[i], a)
			}
		}
	}
}

// checkBatch asks a node, again while it has no time for that. It reports whether that was so once: then some may have been counted.
func (f *traffic) checkBatch(n *process.Node, reqs []*weirv1.RateLimitRequest) (answers []*weirv1.RateLimitResponse, refused bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hung)
	defer cancel()
	for {
		answers, err := n.Client.CheckBatch(ctx, reqs)
		if err == nil {
			return answers, refused
		}
		if refused = status.Code(err) == codes.ResourceExhausted; !refused {
			f.t.Fatal(err)
		}
	}
}

// decided reports whether a node has counted the check, rather than applied the failure policy.
func decided(s weirv1.Source) bool {
	switch s {
	case weirv1.Source_SOURCE_OWNER, weirv1.Source_SOURCE_LENT, weirv1.Source_SOURCE_RELAYED, weirv1.Source_SOURCE_PROVISIONAL:
		return true
	}
	return false
}

// without has a node not be asked any more, and waits until its callers have their answers.
func (f *traffic) without(n *process.Node) {
	f.mu.Lock()
	f.nodes = slices.DeleteFunc(slices.Clone(f.nodes), func(o *process.Node) bool { return o == n })
	underWay := f.underWay[n.ID]
	f.mu.Unlock()
	if underWay != nil {
		underWay.Wait() // for patience at most
	}
}

// with has one more node asked.
func (f *traffic) with(n *process.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes = append(slices.Clone(f.nodes), n)
}

// withoutOnceUnready does what a load balancer does: a node that says that it is not ready
// is not asked any more.
func (f *traffic) withoutOnceUnready(n *process.Node) {
	f.t.Helper()
	process.Await(f.t, hung, func() error {
		resp, err := http.Get("http://" + n.HTTP + "/readyz")
		if err != nil {
			return nil
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode == http.StatusOK {
			return fmt.Errorf("%s says that it is ready", n.ID)
		}
		return nil
	})
	f.without(n)
}

func (f *traffic) run(ctx context.Context) {
	pace := time.NewTicker(f.tick)
	defer pace.Stop()
	var asking sync.WaitGroup
	room := make(chan struct{}, inFlight)
	for {
		select {
		case <-ctx.Done():
			asking.Wait()
			return
		case <-pace.C:
		}
		keys := f.draw()
		n, answered := f.next()
		f.turn++
		room <- struct{}{}
		asking.Go(func() {
			defer answered()
			f.send(n, keys)
			<-room
		})
	}
}

// next returns the node whose turn it is, and what is to be called once it has answered.
func (f *traffic) next() (n *process.Node, answered func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = f.nodes[f.turn%len(f.nodes)]
	if f.underWay[n.ID] == nil {
		f.underWay[n.ID] = new(sync.WaitGroup)
	}
	f.underWay[n.ID].Add(1)
	f.ticks = append(f.ticks, time.Now())
	return n, f.underWay[n.ID].Done
}

// mixed returns a batch of keys of all kinds, and notes that they are asked for.
func (f *traffic) mixed() []string {
	if f.turn%busyEvery == 0 {
		return f.burst()
	}
	keys := make([]string, 0, f.size)
	add := func(kind string, i, limit int) {
		key := fmt.Sprintf("%s-%d", kind, i)
		keys = append(keys, key)
		f.ledger.ask(key, limit)
	}
	for i := range briskAtOnce / 2 {
		i = 2*i + f.turn%2
		add("brisk", f.names[i], briskLimit)
		if f.brisk[i]++; f.brisk[i] == briskAsks {
			f.brisk[i], f.names[i] = 0, f.nextBrisk
			f.nextBrisk++
		}
	}
	for range 3 {
		add("slow", rand.IntN(slowKeys), slowLimit)
	}
	for len(keys) < f.size {
		add("spent", rand.IntN(spentKeys), spentLimit)
	}
	return keys
}

// burst returns a batch about one busy key.
func (f *traffic) burst() []string {
	key := fmt.Sprintf("busy-%d", f.which)
	keys := make([]string, f.size)
	for i := range keys {
		keys[i] = key
		f.ledger.ask(key, busyLimit)
	}
	if f.busy += f.size; f.busy >= busyAsks {
		f.busy = 0
		f.which++
	}
	return keys
}

// send asks a node, and keeps account of the answers.
func (f *traffic) send(n *process.Node, keys []string) {
	reqs := make([]*weirv1.RateLimitRequest, len(keys))
	for i, key := range keys {
		reqs[i] = request(key, 1)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s := sample{asked: time.Now(), node: n.ID}
	answers, err := ask(ctx, n, reqs)
	now := time.Now()
	s.refused = status.Code(err) == codes.ResourceExhausted
	s.took, s.err = now.Sub(s.asked), err != nil && !s.refused
	if s.took >= askedTwice {
		f.ledger.delay(keys)
	}
	for i, a := range answers {
		s.sources[a.GetSource()]++
		switch {
		case !decided(a.GetSource()):
			f.ledger.lose(keys[i])
		case a.GetAllowed():
			f.ledger.grantBy(a.GetSource(), keys[i], 1, now)
		}
	}
	if err != nil {
		for _, key := range keys {
			f.ledger.lose(key)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.samples = append(f.samples, s)
	if err != nil && len(f.firsts) < 5 {
		f.firsts = append(f.firsts, fmt.Sprintf("%s asked at %s: %v", n.ID, s.asked.Format("05.000"), err))
	}
}

// ask asks a node for a batch, or for one check by the call for one.
func ask(ctx context.Context, n *process.Node, reqs []*weirv1.RateLimitRequest) ([]*weirv1.RateLimitResponse, error) {
	if len(reqs) > 1 {
		return n.Client.CheckBatch(ctx, reqs)
	}
	answer, err := n.Client.Check(ctx, reqs[0])
	if err != nil {
		return nil, err
	}
	return []*weirv1.RateLimitResponse{answer}, nil
}

// finish stops the traffic, and asks for all slow and brisk keys until they are used up.
func (f *traffic) finish() {
	f.t.Helper()
	f.stop()
	type rest struct {
		key  string
		left int
	}
	var open []rest
	f.ledger.mu.Lock()
	for key, a := range f.ledger.keys {
		if strings.HasPrefix(key, "slow-") || strings.HasPrefix(key, "brisk-") {
			if left := a.limit - len(a.granted); left > 0 {
				open = append(open, rest{key, left})
			}
		}
	}
	f.ledger.mu.Unlock()
	for i, r := range open {
		tokens, more := r.left, true
		for more {
			more = f.use(f.nodes[i%len(f.nodes)], r.key, tokens) || tokens > 1
			tokens = 1
		}
	}
}

// use asks a node for tokens of a key, and reports whether they were granted.
func (f *traffic) use(n *process.Node, key string, tokens int) (granted bool) {
	f.t.Helper()
	f.ledger.ask(key, 0)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, err := n.Client.Check(ctx, request(key, tokens))
	switch {
	case err != nil:
		f.t.Errorf("%s: %v", key, err)
	case !decided(a.GetSource()) && f.lenient:
		f.ledger.lose(key)
	case !decided(a.GetSource()):
		f.t.Errorf("%s: %v", key, a.GetSource())
	case a.GetAllowed():
		f.ledger.grantBy(a.GetSource(), key, tokens, time.Now())
		return true
	}
	return false
}

// exact fails the test unless of every key that is used up just its limit was granted. On a machine so busy that this process
// could not ask in time, standbys may grant apart, as owners may not run.
func (f *traffic) exact() {
	f.t.Helper()
	more := nothing
	if f.paceOf(time.Time{}, time.Now()) < enoughPace {
		more = func(a *account) int { return a.apart }
	}
	f.exactBut(more, nothing)
}

// exactBut is exact where more and less may be granted.
func (f *traffic) exactBut(more, less func(*account) int) {
	f.t.Helper()
	f.ledger.noneOver(f.t, more)
	f.ledger.mu.Lock()
	defer f.ledger.mu.Unlock()
	checked, short := 0, 0
	for key, a := range f.ledger.keys {
		if strings.HasPrefix(key, "busy-") { // what is lent and not used is given back, but not at once
			continue
		}
		checked++
		n := len(a.granted)
		short += max(0, a.limit-n)
		if n < a.limit-less(a) {
			f.t.Errorf("%s: %d tokens granted of %d, although it was asked for until it was denied\n%s", key, n, a.limit, a.when())
		}
	}
	f.t.Logf("exactly the limit was granted of %d keys, unless said otherwise; %d tokens less in all", checked, short)
}

// figures are what callers have seen in a time.
type figures struct {
	checks, errors int
	sources        map[weirv1.Source]int
	p50, p99, most time.Duration
	pace           float64 // checks that were asked, as a share of what was to be
	unexcused      int     // undecided checks while the machine was not too busy
	refused        int     // checks for which nodes had no time while it was
}

// seen returns the results of batches sent in a time, except for callers of the nodes named.
func (f *traffic) seen(from, to time.Time, but ...*process.Node) figures {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := figures{sources: make(map[weirv1.Source]int)}
	var took []time.Duration
	var first, last time.Time
	for _, s := range f.samples {
		if s.asked.Before(from) || s.asked.After(to) || slices.ContainsFunc(but, func(n *process.Node) bool { return n.ID == s.node }) {
			continue
		}
		if g.checks == 0 || s.asked.Before(first) {
			first = s.asked
		}
		if s.asked.After(last) {
			last = s.asked
		}
		g.checks += f.size
		busy := f.paceLocked(s.asked.Add(-nearby), s.asked.Add(s.took+nearby)) < enoughPace
		switch {
		case s.err, s.refused && !busy:
			g.errors += f.size
		case s.refused:
			g.refused += f.size
		}
		for source, n := range s.sources {
			if n == 0 {
				continue
			}
			g.sources[weirv1.Source(source)] += n
			if !decided(weirv1.Source(source)) && !busy {
				g.unexcused += n
			}
		}
		took = append(took, s.took)
	}
	if len(took) > 0 {
		slices.Sort(took)
		g.pace = float64(len(took)) / float64(last.Sub(first)/f.tick+1)
		g.p50, g.p99, g.most = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	}
	return g
}

// nearby is the time before and after a check in which the machine was too busy for it, if it was.
const nearby = time.Second

// paceOf returns how many batches could be sent in a time, as a share of what was to be: of that part of it in which there was
// traffic.
func (f *traffic) paceOf(from, to time.Time) float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paceLocked(from, to)
}

func (f *traffic) paceLocked(from, to time.Time) float64 {
	first, _ := slices.BinarySearchFunc(f.ticks, from, time.Time.Compare)
	end, _ := slices.BinarySearchFunc(f.ticks, to, time.Time.Compare)
	if end-first < 2 {
		return 0
	}
	if first > 0 {
		first-- // so that a gap at the beginning counts
	}
	if end < len(f.ticks) {
		end++
	}
	return float64(end-first-1) / float64(f.ticks[end-1].Sub(f.ticks[first])/f.tick)
}

// checkPromise fails the test if something has taken longer than is promised. On a machine on which even this process could not
// ask in time it says nothing, nor without traffic.
func (f *traffic) checkPromise(what string, promised time.Duration, began time.Time) {
	if f == nil || time.Since(began) <= promised {
		return
	}
	f.t.Helper()
	now := time.Now()
	if pace := f.paceOf(began, now); pace < enoughPace {
		f.t.Logf("%v %s, %v are promised; but the machine is too busy for that to say anything: %.0f %% of the checks were asked in time",
			now.Sub(began), what, promised, 100*pace)
		return
	}
	f.t.Errorf("%v %s, %v are promised", now.Sub(began), what, promised)
}

func (g figures) String() string {
	var by []string
	for source := range kinds {
		if n := g.sources[weirv1.Source(source)]; n > 0 {
			by = append(by, fmt.Sprintf("%s %d", strings.ToLower(strings.TrimPrefix(weirv1.Source(source).String(), "SOURCE_")), n))
		}
	}
	if g.refused > 0 {
		by = append(by, fmt.Sprintf("refused %d", g.refused))
	}
	return fmt.Sprintf("%d checks (%s), %d errors; p50 %v, p99 %v, longest %v", g.checks, strings.Join(by, ", "), g.errors,
		g.p50.Round(10*time.Microsecond), g.p99.Round(10*time.Microsecond), g.most.Round(time.Millisecond))
}

// undecided returns how many checks no node has counted.
func (g figures) undecided() (n int) {
	for source, checks := range g.sources {
		if !decided(source) {
			n += checks
		}
	}
	return n
}

// report logs what callers have seen since then, under a name, and returns it.
func (f *traffic) report(name string, since time.Time) figures {
	f.t.Helper()
	g := f.seen(since, time.Now())
	if !since.IsZero() {
		name = fmt.Sprintf("%s, %v", name, time.Since(since).Round(100*time.Millisecond))
	}
	f.t.Logf("%s: %v", name, g)
	return g
}

// noErrors fails the test if callers have seen an error, or an undecided answer, except for callers of the
// nodes named. If the machine was too busy meanwhile for nodes to run, that is as if they were stopped: then no node may decide.
func (f *traffic) noErrors(but ...*process.Node) {
	f.t.Helper()
	f.report("in all", time.Time{})
	g := f.seen(time.Time{}, time.Now(), but...)
	if g.errors > 0 || g.unexcused > 0 {
		f.t.Errorf("%d checks with errors, %d undecided, %d of them while the machine was not too busy; the first errors: %q\n%s",
			g.errors, g.undecided(), g.unexcused, f.firsts, f.undecidedWhen())
	} else if g.undecided() > 0 {
		f.t.Logf("%d checks undecided while the machine was too busy for nodes to run", g.undecided())
	}
}

// undecidedWhen says when undecided answers were given, in brief.
func (f *traffic) undecidedWhen() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	lines := 0
	for _, s := range f.samples {
		for source, n := range s.sources {
			if n > 0 && !decided(weirv1.Source(source)) && lines < 20 {
				lines++
				fmt.Fprintf(&b, "%s asked at %s, took %v: %d %v\n", s.node, s.asked.Format("05.000"), s.took.Round(time.Millisecond), n, weirv1.Source(source))
			}
		}
	}
	return b.String()
}

// lastFrom returns when a batch was last asked that one of these sources has answered in part.
func (f *traffic) lastFrom(sources ...weirv1.Source) (last time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.samples {
		for _, source := range sources {
			if s.sources[source] > 0 && s.asked.After(last) {
				last = s.asked
			}
		}
	}
	return last
}

// calm is how long nothing happens.
func calm() time.Duration { return brief(2*time.Second, time.Second) }

// checkLatency fails the test, in the full form, if callers have waited for much longer than
// in the times of rest before and after. On a machine on which even this process could not ask in time it says nothing.
func checkLatency(t *testing.T, g figures, rests ...figures) {
	t.Helper()
	pace, usual := g.pace, time.Duration(0)
	for _, r := range rests {
		pace, usual = min(pace, r.pace), max(usual, r.p99)
	}
	if pace < enoughPace {
		t.Logf("the machine is too busy for latencies to say anything: %.0f %% of the checks were asked in time", 100*pace)
		return
	}
	t.Logf("p99 is %.1f times what it is at rest", float64(g.p99)/float64(usual))
	if most := 5*usual + 50*time.Millisecond; form.Full() && g.p99 > most {
		t.Errorf("p99 %v, more than %v", g.p99, most)
	}
}
