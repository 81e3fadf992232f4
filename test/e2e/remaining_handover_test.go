package e2e

import (
	"sync"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/test/process"
)

// TestRemainingInAHandOver has a node join while callers take from counters: what remains does not rise for a caller that stays
// with its node, although the new owner is given back what the old one has lent.
func TestRemainingInAHandOver(t *testing.T) {
	const lasts = 3 * time.Second
	etcd := process.StartEtcd(t)
	args := []string{"--etcd", etcd.Endpoint, "--rules", writeRules(t, rulesOfFlood), "--peer-timeout", "5s"}
	nodes := []*process.Node{process.Start(t, args...), process.Start(t, args...)}
	process.AwaitMembers(t, process.Patience, nodes...)
	var all sync.WaitGroup
	all.Go(func() { process.Start(t, args...) })
	began := time.Now()
	for caller := range 24 {
		all.Go(func() {
			n, who := nodes[caller%2], []string{"a", "b", "c", "d"}[caller/2%4]
			last := &weirv1.RateLimitResponse{RemainingTokens: 1_000_000}
			for time.Since(began) < lasts {
				resp, err := n.Client.Check(t.Context(), user(who))
				if err != nil || !resp.GetAllowed() {
					t.Errorf("%v, %v", resp, err)
					return
				}
				if s := resp.GetSource(); s == weirv1.Source_SOURCE_FAIL_OPEN || s == weirv1.Source_SOURCE_PROVISIONAL {
					continue // no owner has said what remains
				}
				if resp.GetRemainingTokens() > last.GetRemainingTokens() {
					t.Errorf("after %v node %d says of %s: %d remain (%v) after %d (%v)", time.Since(began), caller%2, who,
						resp.GetRemainingTokens(), resp.GetSource(), last.GetRemainingTokens(), last.GetSource())
				}
				last = resp
			}
		})
	}
	all.Wait()
}
