package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/client"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Sizes of the load.
const (
	clients      = 3
	workers      = 4 // of one client
	usersPerRule = 4
	meanPause    = 50 * time.Millisecond   // of a worker, between two checks
	hotPause     = 1500 * time.Microsecond // of a worker that asks for the hot key
	hotClients   = 2                       // of which one worker asks for it
	lentFor      = 300 * time.Millisecond  // the longest that tokens are lent for
	maxTokens    = 3                       // of one check
)

// Rule is a rule of the load, of one limit.
type Rule struct {
	Name      string
	Algorithm string
	Limit     int64
	Burst     int64 // 0 is as Limit
	Window    time.Duration
}

// Rules are of all algorithms. Those with a window of an hour are soon used up, and must
// stay so.
var Rules = []Rule{
	{Name: "fixed", Algorithm: "fixed_window", Limit: 12, Window: 4 * time.Second},
	{Name: "fixed-hour", Algorithm: "fixed_window", Limit: 40, Window: time.Hour},
	{Name: "sliding", Algorithm: "sliding_window", Limit: 12, Window: 4 * time.Second},
	{Name: "sliding-hour", Algorithm: "sliding_window", Limit: 40, Window: time.Hour},
	{Name: "buckets", Algorithm: "sliding_window_buckets", Limit: 20, Window: 6 * time.Second},
	{Name: "log", Algorithm: "sliding_window_log", Limit: 20, Window: 6 * time.Second},
	{Name: "bucket", Algorithm: "token_bucket", Limit: 20, Burst: 30, Window: 10 * time.Second},
	{Name: "gcra", Algorithm: "gcra", Limit: 20, Window: 10 * time.Second},
	{Name: "leaky", Algorithm: "leaky_bucket", Limit: 20, Burst: 10, Window: 10 * time.Second},
	{Name: "hot", Algorithm: "sliding_window", Limit: 2000, Window: 4 * time.Second},
}

// hotKey is asked for in plans that are hot, and only there. Its tokens are lent.
var hotKey = Key{Rule: len(Rules) - 1}

// text returns the rules as nodes read them. Undecided checks are denied, so that only counted ones are
// allowed.
func text() string {
	var b strings.Builder
	b.WriteString("domain: default\nrules:\n")
	for _, r := range Rules {
		burst := ""
		if r.Burst > 0 {
			burst = fmt.Sprintf("burst: %d, ", r.Burst)
		}
		fmt.Fprintf(&b, "  - {id: %s, when: {endpoint: %s}, per: [user], on_failure: deny, limits: [{limit: %d, window: %v, %salgorithm: %s}]}\n",
			r.Name, r.Name, r.Limit, r.Window, burst, r.Algorithm)
	}
	return b.String()
}

// Key is a counter: a user under a rule.
type Key struct{ Rule, User int }

// String returns rule/user.
func (k Key) String() string { return Rules[k.Rule].Name + "/" + userName(k.User) }

func userName(i int) string { return fmt.Sprint("user-", i) }

// Hit is a check that was admitted, between the instants at which it was asked and
// answered.
type Hit struct {
	From, To time.Duration
	Wait     time.Duration // until it may go on
	Tokens   int64
	Source   weirv1.Source
}

// Answers are what the clients were told.
type Answers struct {
	mu      sync.Mutex
	hits    map[Key][]Hit         // guarded by mu
	checks  int                   // guarded by mu
	denied  int                   // guarded by mu
	sources map[weirv1.Source]int // guarded by mu
	errors  []problem             // guarded by mu
	late    []problem             // checks that no node has answered in the client's time, which allowed them; guarded by mu
	refused []problem             // checks that no node could decide, and that were denied for that; guarded by mu
}

// problem is what went wrong with a check.
type problem struct {
	at   time.Duration
	key  Key
	what string
}

// String returns when and what.
func (p problem) String() string { return fmt.Sprintf("%.3fs %s", p.at.Seconds(), p.what) }

func newAnswers() *Answers {
	return &Answers{hits: make(map[Key][]Hit), sources: make(map[weirv1.Source]int)}
}

func clientHost(i int) string { return fmt.Sprintf("client-%d", i) }

// load asks until ctx ends.
func (w *World) load(ctx context.Context, p Plan, into *Answers) error {
	var running sync.WaitGroup
	defer running.Wait()
	for i := range clients {
		host, err := w.network.Host(clientHost(i))
		if err != nil {
			return err
		}
		var seeds []string
		for _, id := range p.Start {
			seeds = append(seeds, addressOn(id))
		}
		options := []client.Option{client.WithDialer(host.Dial), client.WithSeeds(seeds...)}
		if p.Leases && i == 0 {
			options = append(options, client.WithLeases())
		}
		c, err := client.New(seeds[i%len(seeds)], options...)
		if err != nil {
			return err
		}
		running.Go(func() {
			defer func() {
				if err := c.Close(); err != nil {
					w.fail("%s: %v", host.Name(), err)
				}
			}()
			var asking sync.WaitGroup
			for j := range workers {
				asking.Go(func() {
					rnd := rand.New(rand.NewPCG(p.Seed, uint64(1+i*workers+j)))
					w.ask(ctx, c, host.Name(), rnd, p.Hot && i < hotClients && j == 0, into)
				})
			}
			asking.Wait()
		})
	}
	return nil
}

// ask asks about one key after the other.
func (w *World) ask(ctx context.Context, c *client.Client, who string, rnd *rand.Rand, hot bool, into *Answers) {
	pause := meanPause
	if hot {
		pause = hotPause
	}
	for {
		wait(ctx, time.Duration(1+rnd.ExpFloat64()*float64(pause)))
		if ctx.Err() != nil {
			return
		}
		k := Key{rnd.IntN(hotKey.Rule), rnd.IntN(usersPerRule)}
		tokens := int64(1)
		if rnd.IntN(8) == 0 {
			tokens += rnd.Int64N(maxTokens)
		}
		if hot {
			k, tokens = hotKey, 1
		}
		from := w.now()
		resp, err := c.Check(context.Background(), &weirv1.RateLimitRequest{
			IdentifierType: "user", Identifier: userName(k.User), Endpoint: Rules[k.Rule].Name, TokensRequested: tokens,
		})
		into.add(who, k, Hit{From: from, To: w.now(), Tokens: tokens}, resp, err)
	}
}

func (r *Answers) add(who string, k Key, h Hit, resp *weirv1.RateLimitResponse, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks++
	r.sources[resp.GetSource()]++
	note := func(list *[]problem, what any) {
		*list = append(*list, problem{h.From, k, fmt.Sprintf("%s asked for %v: %v", who, k, what)})
	}
	switch {
	case err != nil:
		note(&r.errors, err)
	case client.Undecided(resp) && resp.GetRuleId() == "": // by the client
		note(&r.late, "no node answers in time")
	case resp.GetSource() == weirv1.Source_SOURCE_NO_RULE:
		note(&r.errors, "no rule")
	case resp.GetSource() == weirv1.Source_SOURCE_FAIL_CLOSED:
		note(&r.refused, "no node decides")
	case !resp.GetAllowed():
		r.denied++
	default:
		if resp.GetSource() == weirv1.Source_SOURCE_LENT {
			h.From -= lentFor // they were counted when they were lent
		}
		h.Source = resp.GetSource()
		h.Wait = resp.GetDelay().AsDuration()
		r.hits[k] = append(r.hits[k], h)
	}
}

// keys returns the keys that were admitted, sorted.
func (r *Answers) keys() []Key {
	var keys []Key
	for k := range r.hits {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b Key) int { return (a.Rule-b.Rule)*usersPerRule + a.User - b.User })
	return keys
}
