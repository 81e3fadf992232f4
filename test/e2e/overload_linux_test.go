package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/test/process"
)

// offered is what became of checks that were sent, as weir bench reports it.
type offered struct {
	Seconds  float64
	Checks   int64 // that were answered
	FailOpen int64 `json:"fail_open"`
	Errors   int64
	Failures map[string]int64

	cpu     time.Duration // of the nodes meanwhile
	refused float64       // calls that the nodes have refused meanwhile
}

func (o offered) String() string {
	return fmt.Sprintf("%d checks in %.1f s: %d decided, %d undecided, %d past their deadline, other errors %v; %.0f calls refused; %v of processor time",
		o.all(), o.Seconds, o.decided(), o.undecided(), o.late(), o.Failures, o.refused, o.cpu)
}

func (o offered) all() int64  { return o.Checks + o.Errors }
func (o offered) late() int64 { return o.Failures["DeadlineExceeded"] }

// undecided is how many passed although no node has decided them, or would behind an Envoy, which allows a request on any error.
func (o offered) undecided() int64 {
	return o.FailOpen + o.Failures["Unavailable"] + o.Failures["Unknown"]
}

// decided is how many were answered with a decision.
func (o offered) decided() int64 { return o.Checks - o.FailOpen }

// perCPU is how many checks were decided per second of the nodes' processor time.
func (o offered) perCPU() float64 { return float64(o.decided()) / o.cpu.Seconds() }

// refusalCost is what a refusal takes of the time of a decision, at most: it is read and answered, too.
const refusalCost = 0.2

// lightLoad is the share of their capacity that is asked of nodes after the overload. A check that comes alone takes about three times the processor time
// of one among many, and nodes have other things to do: 0.3 took 75 to 93 % of all that they were given.
const lightLoad = 0.15

// used is the share of the nodes' processor time that was of use, where calm is what they decide without overload.
func (o offered) used(calm offered) float64 {
	return (float64(o.decided()) + refusalCost*o.refused) / (calm.perCPU() * o.cpu.Seconds())
}

// demand is what is sent: checks a second, as fast as they are answered if that is 0.
type demand struct {
	callers int
	rate    float64
	during  time.Duration
	timeout time.Duration
}

// offer runs send, and adds what the nodes know of it.
func offer(t *testing.T, nodes []*process.Node, l demand, send func(*testing.T, []*process.Node, demand) offered) offered {
	t.Helper()
	known := func() (cpu time.Duration, refused float64) {
		for _, n := range nodes {
			cpu += process.CPU(t, n.PID())
			refused += n.Metric(t, "weir_refused_calls_total")
		}
		return cpu, refused
	}
	cpu, refused := known()
	o := send(t, nodes, l)
	o.cpu, o.refused = known()
	o.cpu -= cpu
	o.refused -= refused
	t.Logf("%d callers, %.0f checks a second: %v", l.callers, l.rate, o)
	return o
}

// bench sends checks with weir bench, in that mode.
func bench(args ...string) func(*testing.T, []*process.Node, demand) offered {
	return func(t *testing.T, nodes []*process.Node, l demand) (o offered) {
		t.Helper()
		var targets []string
		for _, n := range nodes {
			targets = append(targets, n.GRPC)
		}
		all := append([]string{
			"bench", "grpc", "user=u", "--json", "--keys", "20000", "--connections", "4", "--target", strings.Join(targets, ","),
			"--callers", fmt.Sprint(l.callers), "--duration", l.during.String(), "--timeout", l.timeout.String(),
		}, args...)
		if l.rate > 0 {
			all = append(all, "--rate", fmt.Sprint(max(1, int(l.rate))))
		}
		cmd := exec.CommandContext(t.Context(), process.Binary(t), all...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 1 { // some checks were not answered
			err = nil
		}
		if err == nil {
			err = json.Unmarshal(stdout.Bytes(), &o)
		}
		if err != nil {
			t.Fatalf("%v: %v\n%s", all, err, stderr.String())
		}
		return o
	}
}

var everyFlood = flag.Bool("floods", false, "flood nodes in every way that they can be asked")

// TestOverloadIsRefused offers three nodes three times what they can decide, by the clock and with deadlines as
// clients have them. It takes real time, because what it is about are the queues of the kernel and of
// the Go runtime. The nodes' capacity is measured in the same run. Each node is held to a fifth of a
// processor, since the load could not send enough otherwise. What the nodes achieve is compared by their processor
// time, which other processes may take from them.
func TestOverloadIsRefused(t *testing.T) {
	if !*everyFlood {
		process.NotInBrief(t)
	}
	th := newThrottle(t, fifth)
	rules := writeRules(t, rulesPerYear(1_000_000))
	etcd := process.StartEtcd(t)
	nodes := make([]*process.Node, 3)
	for i := range nodes {
		hold := th.share(fmt.Sprint(i))
		nodes[i] = process.How{Env: []string{"GOMAXPROCS=1"}}.Start(t, "--etcd", etcd.Endpoint, "--rules", rules)
		hold(nodes[i])
	}
	process.AwaitSettled(t, process.Patience, nodes...)
	for _, way := range []struct {
		name        string
		send        func(*testing.T, []*process.Node, demand) offered
		calm, flood int     // callers
		least       float64 // share of the nodes' processor time that is of use; a refusal over HTTP costs a third of a decision
	}{
		{"unary", bench(), 48, 10_000, 0.5},
		{"batches of 100", bench("--mode", "batch"), 12, 500, 0.4},
		{"batches of 1000", bench("--mode", "batch", "--batch", "1000"), 2, 200, 0.4},
		{"Envoy", bench("--mode", "envoy", "--batch", "2"), 48, 5_000, 0.5},
		{"HTTP", sendHTTP, 48, 1_500, 0.1},
	} {
		t.Run(way.name, func(t *testing.T) {
			if !*everyFlood && way.name != "unary" {
				t.Skip("with -floods only, on a machine with nothing else to do: make overload")
			}
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
			judgeOverload(t, calm, over, after, way.least, flood)
			most := after.all() / share
			if th.groups != "" && after.Errors > most { // else other processes may stop nodes altogether
				t.Errorf("a second after the overload: %v", after)
			}
		})
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
func judgeOverload(t *testing.T, calm, over, after offered, least float64, flood demand) {
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
	case over.late()*2 <= over.all(): // without refusals three quarters and more are late
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
	process.NotInBrief(t)
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
