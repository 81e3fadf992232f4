package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// refusalCost is what a refusal takes of the time of a decision, at most: it is read and answered, too.
const refusalCost = 0.2

// lightLoad is the share of their capacity that is asked of nodes after the overload. A check that comes alone takes about three times the processor time
// of one among many, and nodes have other things to do: 0.3 took 75 to 93 % of all that they were given.
const lightLoad = 0.15

// used is the share of the nodes' processor time that was of use, where calm is what they decide without overload.
func (o offered) used(calm offered) float64 {
	return (float64(o.decided()) + refusalCost*o.refused) / (calm.perCPU() * o.cpu.Seconds())
}

// flooded is a way to ask nodes for too much. Callers are for three nodes.
type flooded struct {
	name        string
	send        func(*testing.T, []*process.Node, demand) offered
	calm, flood int     // callers
	least       float64 // share of the nodes' processor time that is of use; a refusal over HTTP costs a third of a decision
	late        float64 // share of the checks that is not answered in time, at most; without refusals it is three quarters and more
}

// TestOverloadIsRefused offers three nodes, and one, three times what they can decide, by the clock and with deadlines as
// clients have them. It takes real time, because what it is about are the queues of the kernel and of
// the Go runtime. The nodes' capacity is measured in the same run. Each node is held to a share of a
// processor, since the load could not send enough otherwise. What the nodes achieve is compared by their processor
// time, which other processes may take from them.
func TestOverloadIsRefused(t *testing.T) {
	if !*everyFlood {
		testform.NotInBrief(t)
	}
	ways := []flooded{
		{"unary", bench(), 48, 10_000, 0.5, 0.5},
		{"batches of 100", bench("--mode", "batch"), 12, 500, 0.4, 0.5},
		{"batches of 1000", bench("--mode", "batch", "--batch", "1000"), 2, 200, 0.4, 0.5},
		// Envoy lets a request pass that is not answered in time. 10,000 of 200,000 checks come at once, before a node knows that it is late.
		{"Envoy", bench("--mode", "envoy", "--batch", "2"), 48, 5_000, 0.5, 0.05},
		{"HTTP", sendHTTP, 48, 1_500, 0.1, 0.5},
	}
	for _, size := range []struct {
		nodes int
		each  quota
		least float64 // part of what three nodes must do: where no check is forwarded, a decision costs less, and so a refusal of more of it
	}{{3, fifth, 1}, {1, twoFifths, 0.8}} {
		t.Run(fmt.Sprintf("nodes=%d", size.nodes), func(t *testing.T) {
			th := newThrottle(t, size.each)
			args := []string{"--rules", writeRules(t, rulesPerYear(1_000_000)), "--etcd", process.StartEtcd(t).Endpoint}
			nodes := make([]*process.Node, size.nodes)
			for i := range nodes {
				hold := th.share(fmt.Sprint(i))
				nodes[i] = process.How{Env: []string{"GOMAXPROCS=1"}}.Start(t, args...)
				hold(nodes[i])
			}
			process.AwaitSettled(t, process.Patience, nodes...)
			for _, way := range ways {
				t.Run(way.name, func(t *testing.T) {
					if !*everyFlood && (way.name != "unary" || size.nodes == 1) {
						t.Skip("with -floods only, on a machine with nothing else to do: make overload")
					}
					way.flood, way.least = way.flood*size.nodes/3, way.least*size.least
					floodNodes(t, nodes, way, th.groups != "")
				})
			}
		})
	}
}

// floodNodes measures what nodes can decide, offers them three times that, and a little a second later. Held says that nothing but their share
// keeps them from running: else other processes may stop them altogether.
func floodNodes(t *testing.T, nodes []*process.Node, way flooded, held bool) {
	t.Helper()
	calm := offer(t, nodes, demand{way.calm, 0, 2 * time.Second, 2 * time.Second}, way.send)
	capacity := float64(calm.decided()) / calm.Seconds
	refusals := watchRefusals(t, nodes)
	flood := demand{way.flood, 3 * capacity, 4 * time.Second, 250 * time.Millisecond}
	over := offer(t, nodes, flood, way.send)
	t.Logf("half of the refusals took less than %v, and all but 1 %% less than %v", refusals(0.5), refusals(0.99))
	if half := refusals(0.5); half > 50*time.Millisecond {
		t.Errorf("half of the refusals took more than %v", half)
	}
	pause(t, time.Second)                    // recovery
	lasts, share := 3*time.Second, int64(10) // other processes may stop a node for a moment
	if *everyFlood {
		lasts, share = time.Second, 100
	}
	after := offer(t, nodes, demand{way.calm, lightLoad * capacity, lasts, time.Second}, way.send)
	judgeOverload(t, calm, over, after, way.least, way.late, flood)
	if held && after.Errors > after.all()/share {
		t.Errorf("a second after the overload: %v", after)
	}
}

// watchRefusals asks the nodes in turn, over gRPC. What it returns ends that, and is how long that share of the refusals took, for the caller.
func watchRefusals(t *testing.T, nodes []*process.Node) (quantile func(float64) time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var took []time.Duration
	var asking sync.WaitGroup
	asking.Go(func() {
		pace := time.NewTicker(5 * time.Millisecond)
		defer pace.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			begin := time.Now()
			if _, err := nodes[i%len(nodes)].Client.Check(ctx, user("watched")); status.Code(err) == codes.ResourceExhausted {
				took = append(took, time.Since(begin))
			}
			<-pace.C
		}
	})
	return func(share float64) time.Duration {
		stop()
		asking.Wait()
		slices.Sort(took)
		if len(took) == 0 {
			return 0
		}
		return took[int(share*float64(len(took)-1))].Round(100 * time.Microsecond)
	}
}

// judgeOverload judges what became of the checks of a flood, and of those before and after it.
func judgeOverload(t *testing.T, calm, over, after offered, least, latest float64, flood demand) {
	t.Helper()
	due := flood.rate * flood.during.Seconds() // checks
	used := over.used(calm)
	t.Logf("%.0f %% of the nodes' processor time was of use", 100*used)
	if over.undecided()*100 > over.all() {
		t.Errorf("%d of %d checks passed undecided", over.undecided(), over.all())
	}
	if over.refused == 0 && over.Failures["ResourceExhausted"] == 0 {
		t.Error("no call was refused")
	}
	switch late := fmt.Sprintf("%d of %d checks were not answered in time", over.late(), over.all()); {
	case float64(over.late()) <= latest*float64(over.all()):
	case float64(over.all()) < 0.95*due:
		t.Logf("%s, but the load was late itself: %.0f checks were to be sent", late, due)
	default:
		t.Error(late)
	}
	if used < least {
		t.Errorf("%.2f of the nodes' processor time was of use, want %.2f: %.0f checks decided per second of it, %.0f without overload",
			used, least, over.perCPU(), calm.perCPU())
	}
	if over.perCPU() < calm.perCPU()/20 {
		t.Errorf("%.0f checks decided per second of processor time, %.0f without overload", over.perCPU(), calm.perCPU())
	}
	if after.undecided()*100 > after.all() || int64(after.refused)*100 > after.all() {
		t.Errorf("a second after the overload: %v", after)
	}
}

// One caller that waits for each answer before it asks again cannot be too much for a node, though it has the node use up its processor
// time in each period.
func TestOneCallerIsNoOverload(t *testing.T) {
	testform.NotInBrief(t)
	hold := newThrottle(t, rarely).share("node")
	n := process.How{Env: []string{"GOMAXPROCS=1"}}.Start(t, "--rules", writeRules(t, rulesPerYear(1_000_000)))
	hold(n)
	asked, refused := 0, 0
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); asked++ {
		if _, err := n.Client.Check(t.Context(), user("alone")); status.Code(err) == codes.ResourceExhausted {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d checks were refused", refused, asked)
	if refused > 0 || asked < 100 {
		t.Errorf("%d of %d checks were refused", refused, asked)
	}
}
