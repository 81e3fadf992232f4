package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/test/process"
)

const rulesOfBursts = `domain: default
rules:
  - {id: token, per: [token], limits: [{limit: 1000, window: 1d, algorithm: token_bucket}]}
  - {id: gcra, per: [gcra], limits: [{limit: 1000, window: 1d, algorithm: gcra}]}
  - {id: leaky, per: [leaky], limits: [{limit: 1000, window: 1d, algorithm: leaky_bucket}]}
  - {id: sliding, per: [sliding], limits: [{limit: 1000, window: 1d, algorithm: sliding_window}]}
`

// bursts is what became of one caller's bursts.
type bursts struct {
	allowed, denied int
	before          int // allowed before the first burst in which a check was denied
}

// burst asks the nodes in turn, for all checks at once.
func (b *bursts) burst(t *testing.T, nodes []*process.Node, kind string, checks int) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	allowed := 0
	for i := range checks {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
			defer cancel()
			resp, err := nodes[i%len(nodes)].Client.Check(ctx, &weirv1.RateLimitRequest{IdentifierType: kind, Identifier: "caller", TokensRequested: 1})
			mu.Lock()
			defer mu.Unlock()
			switch source := resp.GetSource(); {
			case err != nil:
				t.Error(err)
			case source != weirv1.Source_SOURCE_OWNER && source != weirv1.Source_SOURCE_LENT:
				t.Errorf("%s: %v", kind, resp)
			case resp.GetAllowed():
				allowed++
			}
		})
	}
	all.Wait()
	if b.allowed += allowed; b.denied == 0 && allowed == checks {
		b.before = b.allowed
	}
	b.denied += checks - allowed
}

// TestBurstsOverAllNodes has one caller of each bucket send bursts over three nodes, which lend it tokens: a limit is granted in full
// before a check is denied, and not exceeded, and no lent token is lost.
func TestBurstsOverAllNodes(t *testing.T) {
	const limit, size = 1000, 20
	_, nodes := startThree(t, rulesOfBursts, "--peer-timeout", "4s")
	process.AwaitSettled(t, process.Patience, nodes...)
	began := time.Now()
	var all sync.WaitGroup
	for _, kind := range []string{"token", "gcra", "leaky", "sliding"} {
		all.Go(func() {
			var b bursts
			for range limit/size + 10 {
				b.burst(t, nodes, kind, size)
				pause(t, 100*time.Millisecond)
			}
			flown := int(time.Since(began)*limit/(24*time.Hour)) + 1
			t.Logf("%s: %d allowed, %d of them before the first burst that was denied in part", kind, b.allowed, b.before)
			if b.before < limit*995/1000-size || b.allowed < limit || b.allowed > limit+flown {
				t.Errorf("%s: %d of %d allowed, %d before the first burst that was denied in part", kind, b.allowed, limit, b.before)
			}
		})
	}
	all.Wait()
	process.Await(t, process.Patience, func() error { // leases end
		var lent, back, used float64
		for _, n := range nodes {
			lent += n.Metric(t, "weir_lent_tokens_total")
			back += n.Metric(t, "weir_returned_tokens_total")
			used += n.Metric(t, "weir_used_tokens_total")
		}
		if lent == 0 || lent != back+used {
			return fmt.Errorf("%.0f tokens were lent, %.0f returned and %.0f used", lent, back, used)
		}
		t.Logf("%.0f tokens were lent, %.0f returned and %.0f used", lent, back, used)
		return nil
	})
}
