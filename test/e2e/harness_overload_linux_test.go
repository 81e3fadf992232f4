package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

var everyFlood = flag.Bool("floods", false, "flood nodes in every way that they can be asked")

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

func (o offered) all() int64 { return o.Checks + o.Errors }

func (o offered) late() int64 { return o.Failures["DeadlineExceeded"] }

// undecided is how many passed although no node has decided them, or would behind an Envoy, which allows a request on any error.
func (o offered) undecided() int64 {
	return o.FailOpen + o.Failures["Unavailable"] + o.Failures["Unknown"]
}

// decided is how many were answered with a decision.
func (o offered) decided() int64 { return o.Checks - o.FailOpen }

// perCPU is how many checks were decided per second of the nodes' processor time.
func (o offered) perCPU() float64 { return float64(o.decided()) / o.cpu.Seconds() }

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

// sendHTTP sends checks over HTTP. At a rate they are sent by the clock; those for which no caller is free are not sent.
func sendHTTP(t *testing.T, nodes []*process.Node, l demand) (sum offered) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: l.callers}}
	defer client.CloseIdleConnections()
	due := make(chan int)
	var mu sync.Mutex
	sum.Failures = make(map[string]int64)
	var callers sync.WaitGroup
	for range l.callers {
		callers.Go(func() {
			for i := range due {
				source, failure := checkHTTP(t.Context(), client, nodes[i%len(nodes)].HTTP, i, l.timeout)
				mu.Lock()
				switch {
				case failure != "":
					sum.Errors++
					sum.Failures[failure]++
				case source == "SOURCE_FAIL_OPEN":
					sum.FailOpen++
					fallthrough
				default:
					sum.Checks++
				}
				mu.Unlock()
			}
		})
	}
	begin := time.Now()
	sendByTheClock(l, due)
	close(due)
	callers.Wait()
	sum.Seconds = time.Since(begin).Seconds()
	return sum
}

// sendByTheClock hands out numbers to callers at the rate of the load. A number is left out if no caller is free, and without a rate
// callers take the next one as soon as they are free.
func sendByTheClock(l demand, due chan<- int) {
	over := time.After(l.during)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	sent := 0
	for begin := time.Now(); ; {
		if l.rate == 0 {
			select {
			case <-over:
				return
			case due <- sent:
				sent++
			}
			continue
		}
		select {
		case <-over:
			return
		case <-tick.C:
		}
		for ; float64(sent) < l.rate*time.Since(begin).Seconds(); sent++ {
			select {
			case due <- sent:
			default:
			}
		}
	}
}

// checkHTTP returns the source of a decision, or the name of the gRPC code of the failure, as weir bench prints them.
func checkHTTP(ctx context.Context, client *http.Client, address string, i int, timeout time.Duration) (source, failure string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body := fmt.Sprintf(`{"identifier_type":"user","identifier":"u%d"}`, i%20_000)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/check", strings.NewReader(body))
	if err != nil {
		return "", "Internal"
	}
	resp, err := client.Do(req)
	if err == nil {
		defer resp.Body.Close()
		var answer struct{ Source string }
		err = json.NewDecoder(resp.Body).Decode(&answer)
		switch {
		case err == nil && resp.StatusCode == http.StatusServiceUnavailable:
			return "", "ResourceExhausted"
		case err == nil && answer.Source == "":
			return "", "Unknown"
		}
		source = answer.Source
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "", "DeadlineExceeded"
	case err != nil:
		return "", "Unavailable"
	}
	return source, ""
}
