package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/test/process"
)

// callers is how many calls are under way at once, per node.
const callers = 64

// path is a way to ask.
type path struct {
	name             string
	callers, perCall int
	start            caller
}

var paths = []path{
	{"unary", callers, 1, calls(unary)},
	{"batch100", callers, batchSize, calls(batch)},
	{"stream100", streamCallers, batchSize, stream},
	{"envoy100", callers, batchSize, calls(envoy)},
}

// drive asks b.N times, as so many callers, and returns when all have their answers.
func drive(b *testing.B, clients []conn, callers int, start caller) {
	b.ResetTimer()
	askTimes(b, b.N, clients, callers, start)
	b.StopTimer()
	b.ReportMetric(0, "ns/op") // of one of many callers: says nothing
}

// askTimes has callers ask a number of times in all, and returns when they have their answers.
func askTimes(b *testing.B, times int, clients []conn, callers int, start caller) {
	var left, numbers atomic.Int64
	left.Store(int64(times))
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			mine := int(numbers.Add(1))
			ask, end, err := start(clients, mine)
			for i := mine * 7919; err == nil && left.Add(-1) >= 0; i++ {
				err = ask(i)
			}
			if err == nil {
				err = end()
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
}

// measure asks b.N times and reports the processor time of all servers per check.
func measure(b *testing.B, s *servers, callers, perCall int, start caller) float64 {
	before := s.cpu(b)
	drive(b, s.clients, callers, start)
	s.reportBatching(b)
	perCheck := float64((s.cpu(b) - before).Microseconds()) / float64(b.N*perCall)
	b.ReportMetric(perCheck, "cpu-µs/check")
	b.ReportMetric(float64(b.N*perCall)/b.Elapsed().Seconds(), "checks/s")
	return perCheck
}

// BenchmarkCPUPerCheck reports the processor time of all servers per check: of the
// baseline with default settings and with those of a node, of one node, and of three nodes
// of which any is asked: each by as many callers as the one, or by as many in all, so
// that the work is cut finer. "x-baseline" is the ratio to the baseline, "x-one-node" that to
// one node, of the same run.
func BenchmarkCPUPerCheck(b *testing.B) {
	bare, tuned := startBaseline(b, "default"), startBaseline(b, "node")
	one, three := startWeir(b, 1), startWeir(b, 3)
	for _, p := range paths {
		var baselineCost, tunedCost, oneCost float64
		b.Run(p.name+"/baseline", func(b *testing.B) { baselineCost = measure(b, bare, p.callers, p.perCall, p.start) })
		b.Run(p.name+"/baseline-tuned", func(b *testing.B) { tunedCost = measure(b, tuned, p.callers, p.perCall, p.start) })
		b.Run(p.name+"/one-node", func(b *testing.B) {
			oneCost = measure(b, one, p.callers, p.perCall, p.start)
			b.ReportMetric(oneCost/tunedCost, "x-baseline-tuned")
			b.ReportMetric(oneCost/baselineCost, "x-baseline")
		})
		for _, all := range []int{3 * p.callers, p.callers} {
			b.Run(fmt.Sprintf("%s/three-nodes/callers=%d", p.name, all), func(b *testing.B) {
				cost := measure(b, three, all, p.perCall, p.start)
				b.ReportMetric(cost/baselineCost, "x-baseline")
				b.ReportMetric(cost/oneCost, "x-one-node")
			})
		}
	}
}

// BenchmarkFewCallers is unary with three callers, so that hardly anything can be done
// for several at once: the baseline, one node, and three nodes of which any is asked.
func BenchmarkFewCallers(b *testing.B) {
	const few = 3
	tuned, one, three := startBaseline(b, "node"), startWeir(b, 1), startWeir(b, 3)
	var baselineCost, oneCost float64
	b.Run("baseline-tuned", func(b *testing.B) { baselineCost = measure(b, tuned, few, 1, calls(unary)) })
	b.Run("one-node", func(b *testing.B) {
		oneCost = measure(b, one, few, 1, calls(unary))
		b.ReportMetric(oneCost/baselineCost, "x-baseline-tuned")
	})
	b.Run("three-nodes", func(b *testing.B) {
		b.ReportMetric(measure(b, three, few, 1, calls(unary))/oneCost, "x-one-node")
	})
}

// BenchmarkNodes is what a check costs clusters of one to eight nodes, of which any is called, by as many
// callers in all, with one node alone measured at about the same time.
func BenchmarkNodes(b *testing.B) {
	one := startWeir(b, 1)
	for _, size := range []int{1, 2, 3, 4, 6, 8} {
		b.Run(fmt.Sprintf("nodes=%d", size), func(b *testing.B) {
			s := one
			if size > 1 {
				s = startWeir(b, size)
			}
			for _, p := range paths[:2] {
				var oneCost float64
				b.Run(p.name+"/one-node", func(b *testing.B) { oneCost = measure(b, one, p.callers, p.perCall, p.start) })
				b.Run(p.name, func(b *testing.B) {
					b.ReportMetric(measure(b, s, p.callers, p.perCall, p.start)/oneCost, "x-one-node")
				})
			}
		})
	}
}

// idleFor is how long the processor time of an idle node is measured.
const idleFor = 5 * time.Second

// BenchmarkHotDenied asks one of three nodes about one key that is over its limit and that another owns:
// what that costs the called node, compared with the baseline, and the owner, with and without what that
// needs anyway in as much time.
func BenchmarkHotDenied(b *testing.B) {
	bare, tuned := startBaseline(b, "default"), startBaseline(b, "node")
	hot := &weirv1.RateLimitRequest{Domain: "flood", IdentifierType: "user", Identifier: "hot"}
	asked, owner := elsewhere(b, startNodes(b, 3), hot)
	check := func(c conn, _ int) error {
		_, err := c.weir.CheckRateLimit(context.Background(), hot)
		return err
	}
	before := process.CPU(b, owner.PID())
	<-time.After(idleFor)
	idle := float64(process.CPU(b, owner.PID())-before) / float64(idleFor)
	var baselineCost, tunedCost float64
	b.Run("baseline", func(b *testing.B) { baselineCost = measure(b, bare, callers, 1, calls(check)) })
	b.Run("baseline-tuned", func(b *testing.B) { tunedCost = measure(b, tuned, callers, 1, calls(check)) })
	b.Run("three-nodes", func(b *testing.B) {
		s := &servers{}
		s.addNode(b, asked)
		before := process.CPU(b, owner.PID())
		cost := measure(b, s, callers, 1, calls(check)) // of the asked node
		owners := float64((process.CPU(b, owner.PID()) - before).Microseconds()) / float64(b.N)
		idles := idle * float64(b.Elapsed().Microseconds()) / float64(b.N)
		b.ReportMetric(cost/baselineCost, "x-baseline")
		b.ReportMetric(cost/tunedCost, "x-baseline-tuned")
		b.ReportMetric(owners, "owner-cpu-µs/check")
		b.ReportMetric(100*owners/cost, "owner-%")
		b.ReportMetric(100*max(0, owners-idles)/cost, "owner-busy-%")
		b.ReportMetric(100*idle, "owner-idle-%-of-a-core")
	})
}

// elsewhere returns the node that owns the request's counter, and another one.
func elsewhere(b *testing.B, nodes []*process.Node, req *weirv1.RateLimitRequest) (asked, owner *process.Node) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	resp, err := nodes[0].Client.Explain(ctx, req)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range nodes {
		if n.ID == resp.GetRules()[0].GetLimits()[0].GetOwner() {
			owner = n
		} else {
			asked = n
		}
	}
	if owner == nil || asked == nil {
		b.Fatalf("no node owns %v", resp)
	}
	return asked, owner
}
