package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

const domainsPerYear = `domain: flood
rules:
  - {id: per-user, per: [user], limits: [{limit: 1000000, window: 365d}]}
---
domain: little
rules:
  - {id: per-user, per: [user], limits: [{limit: 1000000, window: 365d}]}
`

// TestFloodOfOneDomainIsItsOwn floods one domain of a node for four of six seconds, on 16 connections, while another domain asks for 4 % of
// what the node can decide. The load has priority over the node, which is held to a fifth of a processor. All domains were refused two
// thirds of their calls before work was divided by domains.
//
// On a machine with other things to do it fails in about one of four runs: the node refuses nothing then, and answers nearly all too late. The cause is
// not known; that of TestCallersThatGiveUp, which looks the same, is mended.
func TestFloodOfOneDomainIsItsOwn(t *testing.T) {
	if !*everyFlood {
		t.Skip("with -floods only, on a machine with nothing else to do: make overload")
	}
	th := newThrottle(t, fifth)
	for _, way := range []struct {
		name        string
		args        []string
		calm, flood int     // callers
		times       float64 // of the capacity, that are asked for
	}{
		{"unary", nil, 48, 5_000, 2},
		{"batches", []string{"--mode", "batch"}, 12, 500, 4},
	} {
		t.Run(way.name, func(t *testing.T) {
			nodes := startWithDomains(t, th)
			capacity := capacityOf(t, nodes, way.calm, askFor("flood", way.args...))
			unary := capacityOf(t, nodes, 48, askFor("little"))
			var flood, little offered
			var asking sync.WaitGroup
			asking.Go(func() {
				little = offer(t, nodes, demand{200, 0.04 * unary, 6 * time.Second, 250 * time.Millisecond}, askFor("little"))
			})
			pause(t, time.Second)
			asking.Go(func() {
				flood = offer(t, nodes, demand{way.flood, way.times * capacity, 4 * time.Second, 250 * time.Millisecond}, askFor("flood", way.args...))
			})
			asking.Wait()
			t.Logf("refused: %.1f %% of the flood, %.2f %% of the other domain", 100*flood.refusedShare(), 100*little.refusedShare())
			if little.refusedShare() > 0.25 || float64(little.decided()) < 0.7*float64(little.all()) {
				t.Errorf("of the domain that asks for little: %v", little)
			}
			if flood.refusedShare() < 0.3 {
				t.Errorf("of the flood: %v", flood)
			}
		})
	}
}

// TestWeightsOfDomains floods two domains of a node by batches, of which one has the weight 3.
func TestWeightsOfDomains(t *testing.T) {
	if !*everyFlood {
		t.Skip("with -floods only, on a machine with nothing else to do: make overload")
	}
	nodes := startWithDomains(t, newThrottle(t, fifth), "--domain-weights", "little=3")
	batches := []string{"--mode", "batch"}
	capacity := capacityOf(t, nodes, 12, askFor("flood", batches...))
	var one, three offered
	var asking sync.WaitGroup
	flood := demand{500, 1.5 * capacity, 6 * time.Second, 250 * time.Millisecond}
	asking.Go(func() { one = offer(t, nodes, flood, askFor("flood", batches...)) })
	asking.Go(func() { three = offer(t, nodes, flood, askFor("little", batches...)) })
	asking.Wait()
	if ratio := float64(three.decided()) / float64(one.decided()); ratio < 1.3 || ratio > 5 {
		t.Errorf("%d and %d checks were decided, want three times as many", one.decided(), three.decided())
	}
}

// startWithDomains starts a node that is held to its share of a processor.
func startWithDomains(t *testing.T, th *throttle, args ...string) []*process.Node {
	t.Helper()
	hold := th.share(t.Name()[len(t.Name())-5:])
	n := process.How{Env: []string{"GOMAXPROCS=1"}}.Start(t, append(args, "--rules", writeRules(t, domainsPerYear))...)
	hold(n)
	return []*process.Node{n}
}

// askFor asks for a domain with weir bench, on 16 connections.
func askFor(domain string, args ...string) func(*testing.T, []*process.Node, demand) offered {
	return bench(append([]string{"--domain", domain, "--connections", "16"}, args...)...)
}

// capacityOf is how many checks a second so many callers have decided that wait for each answer.
func capacityOf(t *testing.T, nodes []*process.Node, callers int, ask func(*testing.T, []*process.Node, demand) offered) float64 {
	t.Helper()
	calm := offer(t, nodes, demand{callers, 0, 2 * time.Second, 2 * time.Second}, ask)
	return float64(calm.decided()) / calm.Seconds
}

// refusedShare is the share of all checks that were refused.
func (o offered) refusedShare() float64 {
	return float64(o.Failures["ResourceExhausted"]) / float64(o.all())
}
