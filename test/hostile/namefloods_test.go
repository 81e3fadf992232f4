package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// limitOfVictim is what the rules of floods give each user. Hardly a token comes back within a test.
const limitOfVictim = 10

const rulesOfFloods = `domain: default
rules:
  - {id: user, per: [user], on_failure: deny, limits: [{limit: 10, window: 365d, algorithm: token_bucket}]}
  - {id: network, when: {endpoint: /network}, per: [ip], on_failure: deny, limits: [{limit: 1000, window: 365d, algorithm: token_bucket}]}
  - {id: site, when: {endpoint: /site}, per: [ip], ipv6_prefix: 48, on_failure: deny, limits: [{limit: 5000, window: 365d, algorithm: token_bucket}]}
`

// documentedFloods is the first column of the table in docs/threats.md.
var documentedFloods = []string{
	"Unique names",
	"Addresses of one IPv6 network",
	"Names that the attacker chose to meet in one partition, or in one slot of it",
	"More names than `--counter-memory` has room for",
}

// nameFlood is checks by names of the attacker's choice.
type nameFlood struct {
	name    string
	memory  string // of the node's counters
	full    bool   // the flood fills it
	heavy   bool   // with counters at half of their limits
	next    func(i int) *weirv1.RateLimitRequest
	allowed int64 // of the flood in all, exactly; 0 if it may have what it asks for
}

// Limits in use stay exact during floods of names: those of a caller, of an IPv6 network and of a site with many networks.
// If the memory for counters is full, they stay so for users who have used half of their limit.
func TestFloodsOfNames(t *testing.T) {
	form.NotInBrief(t)
	name := func(i int) *weirv1.RateLimitRequest { return userRequest(fmt.Sprint("flood-", i)) }
	for _, f := range []nameFlood{
		{name: "unique keys", memory: "1GiB", next: name},
		{name: "unique keys, counter memory full", memory: "8MiB", full: true, next: name},
		{name: "unique keys, each at half of its limit, counter memory full", memory: "8MiB", full: true, heavy: true, next: func(i int) *weirv1.RateLimitRequest {
			r := name(i)
			r.TokensRequested = limitOfVictim / 2
			return r
		}},
		{name: "addresses of one IPv6 network", memory: "8MiB", allowed: 1000, next: func(int) *weirv1.RateLimitRequest {
			return addressRequest("/network", 64)
		}},
		{name: "networks of one IPv6 site", memory: "8MiB", allowed: 5000, next: func(int) *weirv1.RateLimitRequest {
			return addressRequest("/site", 48)
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			n := process.Start(t, "--rules", rulesFile(t, rulesOfFloods), "--counter-memory", f.memory)
			v := newRegulars(t, n)
			sent := v.during(t, f, n)
			evicted, counters := n.Metric(t, "weir_counters_evicted_total"), n.Metric(t, "weir_counters")
			t.Logf("%d checks decided for the flood, %d allowed; %.0f counters, %.0f evicted, %.0f checks shared one",
				sent.decided.Load(), sent.allowed.Load(), counters, evicted, n.Metric(t, "weir_counters_shared_total"))
			if shared := n.Metric(t, "weir_counters_shared_total"); (evicted > 0) != (f.full && !f.heavy) || (shared > 0) != f.heavy {
				t.Errorf("%v counters were evicted, %v checks shared one", evicted, shared)
			}
			if f.allowed > 0 && (!sent.exactly(f.allowed) || counters > float64(v.size())+1) {
				t.Errorf("%d of the flood were allowed, want %d; there are %v counters, want one for the flood and %d", sent.allowed.Load(), f.allowed, counters, v.size())
			}
		})
	}
}

// userRequest asks for one token of a user.
func userRequest(name string) *weirv1.RateLimitRequest {
	return &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: name, TokensRequested: 1}
}

// addressRequest asks for one token of a random address whose first bits are always the same.
func addressRequest(endpoint string, bits int) *weirv1.RateLimitRequest {
	address := netip.MustParseAddr("2001:db8:1:2::").As16()
	for i := bits / 8; i < len(address); i++ {
		address[i] = byte(rand.Uint32())
	}
	return &weirv1.RateLimitRequest{IdentifierType: "ip", Identifier: netip.AddrFrom16(address).String(), Endpoint: endpoint, TokensRequested: 1}
}

// flooded is what a flood was answered.
type flooded struct{ sent, decided, allowed, apart, unknown atomic.Int64 }

// exactly reports whether that was allowed, except as tally has it.
func (s *flooded) exactly(n int64) bool {
	allowed := s.allowed.Load()
	return allowed-s.apart.Load() <= n && allowed+s.unknown.Load() >= n
}

// play sends a flood to nodes, on some connections, in batches, until ctx ends and at least a number of checks was decided.
func (f nameFlood) play(ctx context.Context, t *testing.T, least int64, nodes ...*process.Node) *flooded {
	const conns, batch = 4, 1000
	var sum flooded
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() {
			client := weirv1.NewRateLimiterClient(dialNode(t, nodes[i%len(nodes)]))
			for ctx.Err() == nil || sum.decided.Load() < least {
				req := &weirv1.RateLimitBatchRequest{}
				from := int(sum.sent.Add(batch)) - batch
				for j := range batch {
					req.Requests = append(req.Requests, f.next(from+j))
				}
				resp, err := client.CheckRateLimitBatch(context.Background(), req)
				switch {
				case status.Code(err) == codes.ResourceExhausted: // the node has no time for the flood
				case err != nil:
					t.Errorf("flood: %v", err)
					return
				}
				var got tally
				for _, item := range resp.GetResponses() {
					got.add(item)
				}
				sum.decided.Add(int64(len(resp.GetResponses())))
				sum.allowed.Add(int64(got.allowed))
				sum.apart.Add(int64(got.apart))
				sum.unknown.Add(int64(got.unknown))
			}
		})
	}
	wg.Wait()
	return &sum
}

// regulars are users other than the attacker. Some have used all of their limit before the flood, some half of it.
type regulars struct {
	client weirv1.RateLimiterClient
	begun  atomic.Int64 // have begun during the flood
}

// tally is what a user was answered.
type tally struct {
	allowed int
	apart   int // of those, by standbys from their copies: while other processes keep the owner from running, as docs/failures.md says
	unknown int // undecided, as no node could decide: counted or not
}

// atMost reports whether no more was allowed than that, except by standbys.
func (a tally) atMost(n int) bool { return a.allowed-a.apart <= n }

// atLeast reports whether as much was allowed, or may be counted.
func (a tally) atLeast(n int) bool { return a.allowed+a.unknown >= n }

// exactly reports whether that was allowed.
func (a tally) exactly(n int) bool { return a.atMost(n) && a.atLeast(n) }

// add counts an answer.
func (a *tally) add(resp *weirv1.RateLimitResponse) {
	source := resp.GetSource()
	switch {
	case source == weirv1.Source_SOURCE_FAIL_CLOSED:
		a.unknown++
	case resp.GetAllowed() && source == weirv1.Source_SOURCE_PROVISIONAL:
		a.apart++
		a.allowed++
	case resp.GetAllowed():
		a.allowed++
	}
}

const someRegulars = 200 // of each sort

func newRegulars(t *testing.T, nodes ...*process.Node) *regulars {
	t.Helper()
	v := &regulars{client: weirv1.NewRateLimiterClient(dialNode(t, nodes[0]))}
	for i := range someRegulars {
		for name, used := range map[string]int{"spent": limitOfVictim, "half": limitOfVictim / 2} {
			if got := v.take(t, fmt.Sprint(name, i), used); got.allowed != used {
				t.Fatalf("%+v of %d were allowed before the flood", got, used)
			}
		}
	}
	return v
}

// size is how many counters the regulars have.
func (v *regulars) size() int { return 2*someRegulars + int(v.begun.Load()) }

// take asks for one token a number of times, and returns what was answered.
func (v *regulars) take(t *testing.T, name string, times int) (got tally) {
	t.Helper()
	for range times {
		v.ask(t, userRequest(name), &got)
	}
	return got
}

// ask adds the answer to a request. If the node has no time for it, it is sent again.
func (v *regulars) ask(t *testing.T, req *weirv1.RateLimitRequest, got *tally) {
	t.Helper()
	for t.Context().Err() == nil {
		resp, err := v.client.CheckRateLimit(t.Context(), req)
		switch {
		case status.Code(err) == codes.ResourceExhausted:
			continue
		case err != nil:
			t.Errorf("%s: %v", req.GetIdentifier(), err)
		default:
			got.add(resp)
		}
		break
	}
}

// during plays a flood, in which the regulars ask for more than their limits, and holds what they get to these limits.
func (v *regulars) during(t *testing.T, f nameFlood, nodes ...*process.Node) *flooded {
	t.Helper()
	length, least := time.Second, int64(20_000)
	if form.Full() {
		length = 20 * time.Second
	}
	if f.full {
		least = 600_000 // three times what fits
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	over := make(chan struct{})
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for going := true; going && !t.Failed(); {
				select {
				case <-over:
					going = false
				default:
				}
				v.begin(t, f)
				if got := v.take(t, fmt.Sprint("spent", rand.N(someRegulars)), 1); !got.atMost(0) {
					t.Errorf("a user without room was allowed: %+v", got)
				}
			}
		})
	}
	sum := f.play(ctx, t, least, nodes...)
	close(over)
	asking.Wait()
	for i := range someRegulars {
		if got := v.take(t, fmt.Sprint("spent", i), 1); !got.atMost(0) {
			t.Errorf("%d: a user without room was allowed: %+v", i, got)
		}
		if got := v.take(t, fmt.Sprint("half", i), limitOfVictim); !got.exactly(limitOfVictim / 2) {
			t.Errorf("%d: a user who had used half of the limit was allowed %+v, want %d", i, got, limitOfVictim/2)
		}
	}
	t.Logf("%d users began meanwhile", v.begun.Load())
	return sum
}

// begin has a user come who was not there before, and asks for more than the limit.
func (v *regulars) begin(t *testing.T, f nameFlood) {
	t.Helper()
	name := fmt.Sprint("new", v.begun.Add(1))
	most := limitOfVictim
	if f.full { // with half of the limit used at once, the counter stays
		req := userRequest(name)
		req.TokensRequested = limitOfVictim / 2
		var half tally
		v.ask(t, req, &half)
		most -= limitOfVictim / 2 * half.allowed
	}
	got := v.take(t, name, limitOfVictim+2)
	if !got.atMost(most) || !got.atLeast(most) && !f.heavy {
		t.Errorf("%s was allowed %+v more, want %d", name, got, most)
	}
}

func dialNode(t *testing.T, n *process.Node) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(n.GRPC, insecureConn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func rulesFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// docs/threats.md promises what the floods of this package try, and names the tests' directory.
func TestDocumentedFloods(t *testing.T) {
	doc, err := os.ReadFile("../../docs/threats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "| Flood | What holds |\n| --- | --- |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []string
	for row := range strings.Lines(table) {
		rows = append(rows, strings.TrimSpace(strings.Split(row, "|")[1]))
	}
	if !slices.Equal(rows, documentedFloods) {
		t.Errorf("docs/threats.md has the floods\n%q, want\n%q", rows, documentedFloods)
	}
}
