package helm

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/testform"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// The load: single checks of the Go client, which finds the nodes by itself, and checks over HTTP that a Service routes, each on a
// connection of its own.
const (
	clientEvery    = 5 * time.Millisecond
	httpEvery      = 40 * time.Millisecond
	callerPatience = 10 * time.Second // of a caller
	keys           = 20               // of each of the two
	limit          = 30
)

const rollingRules = `domain: default
rules:
  - {id: rolled, per: [rolled], limits: [{limit: 30, window: 365d}]}
  - {id: routed, per: [routed], limits: [{limit: 30, window: 365d}]}
`

// load is the callers, and what they were told.
type load struct {
	t    testing.TB
	stop func() // ends it, and waits for the answers that are due

	mu       sync.Mutex
	began    time.Time
	asked    map[string]int64 // by key
	granted  map[string]int64
	apart    map[string]int64 // of those, by standbys from their copies, or by no node
	problems []string         // errors
	late     []string         // checks that no node has decided
	ticks    int64            // that the client's callers were not too late for
}

// enoughPace is how many of its checks the load must at least have been able to ask in time, as a share: else the machine is so busy that
// nodes do not run for longer than they wait for each other. Then standbys decide from their copies, or no node does.
const enoughPace = 0.97

// answer is what a caller was told.
type answer struct {
	allowed, apart bool
	late           bool // no node has decided
	problem        string
}

func (l *load) ask(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[key]++
}

func (l *load) answer(key string, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.allowed {
		l.granted[key]++
		if a.apart || a.late {
			l.apart[key]++
		}
	}
	text := time.Now().Format("05.000 ") + key + ": " + a.problem
	switch {
	case a.late:
		l.late = append(l.late, text)
	case a.problem != "":
		l.problems = append(l.problems, text)
	}
}

func startLoad(t testing.TB, c *cluster, config *tls.Config) *load {
	t.Helper()
	l := &load{t: t, began: time.Now(), asked: map[string]int64{}, granted: map[string]int64{}, apart: map[string]int64{}}
	grpc, err := client.New(net.JoinHostPort(c.endpoints()[0], "9090"), client.WithTLS(config), client.WithTimeout(callerPatience))
	if err != nil {
		t.Fatal(err)
	}
	routed := &http.Client{Timeout: callerPatience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config.Clone()}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	every := func(interval time.Duration, ask func(number int)) {
		running.Go(func() {
			pace := time.NewTicker(interval)
			defer pace.Stop()
			for number := 0; ; number++ {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
					running.Go(func() { ask(number) })
				}
			}
		})
	}
	every(clientEvery, func(number int) {
		l.mu.Lock()
		l.ticks++
		l.mu.Unlock()
		l.checkByClient(grpc, fmt.Sprint(number%keys))
	})
	every(httpEvery, func(number int) { l.checkByService(c, routed, fmt.Sprint(number%keys)) })
	l.stop = sync.OnceFunc(func() { cancel(); running.Wait(); _ = grpc.Close() })
	t.Cleanup(l.stop)
	return l
}

func (l *load) checkByClient(c *client.Client, key string) {
	l.ask("rolled " + key)
	resp, err := c.Check(context.Background(), &weirv1.RateLimitRequest{IdentifierType: "rolled", Identifier: key})
	a := answer{allowed: resp.GetAllowed(), apart: resp.GetSource() == weirv1.Source_SOURCE_PROVISIONAL}
	switch {
	case err != nil:
		a.problem = err.Error()
	case client.Undecided(resp):
		a.late, a.problem = true, "undecided: "+resp.GetSource().String()
	}
	l.answer("rolled "+key, a)
}

func (l *load) checkByService(c *cluster, h *http.Client, key string) {
	l.ask("routed " + key)
	a, err := checkByService(c, h, key)
	if err != nil {
		a.problem = err.Error()
	}
	l.answer("routed "+key, a)
}

func checkByService(c *cluster, h *http.Client, key string) (a answer, err error) {
	hosts := c.endpoints()
	if len(hosts) == 0 {
		return a, fmt.Errorf("the Service has no endpoint")
	}
	body := `{"identifier_type":"routed","identifier":"` + key + `"}`
	resp, err := h.Post("https://"+net.JoinHostPort(hosts[rand.IntN(len(hosts))], "8080")+"/v1/check", "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	var told struct {
		Allowed bool
		Source  string
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
		return a, fmt.Errorf("%s: %s", resp.Status, text)
	}
	if err := json.Unmarshal(text, &told); err != nil {
		return a, err
	}
	a = answer{allowed: told.Allowed, apart: told.Source == "SOURCE_PROVISIONAL"}
	switch told.Source {
	case "SOURCE_OWNER", "SOURCE_LENT", "SOURCE_RELAYED", "SOURCE_PROVISIONAL":
	default:
		a.late, a.problem = true, fmt.Sprintf("undecided: %s", text)
	}
	return a, nil
}

// check fails the test if a caller got an error or no decision, or if a limit was exceeded or not used up. On a machine so busy that this
// process could not ask in time, checks may be undecided, and a limit may be exceeded by what standbys have granted, as nodes may not run.
func (l *load) check() {
	l.t.Helper()
	lasted := time.Since(l.began)
	l.stop()
	pace := float64(l.ticks) / float64(lasted/clientEvery)
	busy := pace < enoughPace
	var asked, granted int64
	for key, n := range l.asked {
		asked, granted = asked+n, granted+l.granted[key]
		want, more := min(n, limit), int64(0)
		if busy {
			more = l.apart[key]
		}
		if got := l.granted[key]; got < want || got > want+more {
			l.t.Errorf("%s: %d of %d were allowed, want %d, and at most %d more", key, got, n, want, more)
		}
	}
	for i, problem := range l.problems {
		if i == 20 {
			break
		}
		l.t.Error(problem)
	}
	for i, late := range l.late {
		switch {
		case i >= 20:
		case busy:
			l.t.Log(late)
		default:
			l.t.Error(late)
		}
	}
	l.t.Logf("%d checks, %d allowed, %d errors, %d undecided; %.0f %% of the checks were asked in time", asked, granted, len(l.problems), len(l.late), 100*pace)
	if asked < 500 {
		l.t.Errorf("only %d checks were asked", asked)
	}
}

// rollingValues has everything as in the chart, and in the short form shorter times. Other processes of this machine have nodes wait
// for longer than 25 ms, which is no fault of the update.
func rollingValues() string {
	values := `
tls: {mode: certManager}
rules: {source: configMap, files: {rules.yaml: ` + fmt.Sprintf("%q", rollingRules) + `}}
options: {peer-timeout: 4s, %s}
`
	if !form.Full() {
		values += `
preStopSleepSeconds: 1
minReadySeconds: 1
probes: {startup: {periodSeconds: 1}, readiness: {periodSeconds: 1}}
`
	}
	return values
}

// Nodes and etcd start together, as Helm installs them. Then comes a rolling update, as a StatefulSet does it with the pods, probes and times of the chart:
// no caller notices. After it etcd is gone: no probe has a pod killed, and a pod that is replaced serves again without etcd.
func TestRollingUpdate(t *testing.T) {
	if !form.Full() {
		testform.NotInBrief(t)
	}
	testform.NotWhileRacing(t)
	t.Parallel() // it waits most of the time
	c := newCluster(t, fmt.Sprintf(rollingValues(), "log-level: info"))
	config := c.certify()
	set := c.set(full)
	if c.late = 500 * time.Millisecond; form.Full() {
		c.late = 4500 * time.Millisecond
	}
	nodes := c.launchAll(full)
	<-time.After(7 * time.Second) // as etcd may take to start: the nodes wait for it, and none ends
	c.startAll(full + "-etcd")
	awaitAllReady(t, nodes)
	for i := range *set.Spec.Replicas {
		c.checkMember(int(i))
	}
	l := startLoad(t, c, config)

	c.all = render(t, fmt.Sprintf(rollingValues(), "log-level: debug")) // the update
	for i := int(*set.Spec.Replicas) - 1; i >= 0; i-- {
		c.replace(i)
		<-time.After(seconds(set.Spec.MinReadySeconds))
	}

	etcd := c.set(full + "-etcd")
	for i := range *etcd.Spec.Replicas {
		c.pods[fmt.Sprintf("%s-%d", etcd.Name, i)].kill()
	}
	c.replace(1)
	liveness := set.Spec.Template.Spec.Containers[0].LivenessProbe
	if form.Full() {
		<-time.After(seconds(liveness.PeriodSeconds * (liveness.FailureThreshold + 1)))
	}
	if n := len(c.endpoints()); n != int(*set.Spec.Replicas) {
		t.Errorf("without etcd %d pods are ready", n)
	}
	l.check()
	for _, p := range c.pods {
		for _, why := range p.killed {
			t.Error("a kubelet would have killed " + why)
		}
	}
}

// replace deletes a pod, starts it again with its volumes, and waits until it is ready.
func (c *cluster) replace(ordinal int) {
	c.t.Helper()
	name := fmt.Sprintf("%s-%d", full, ordinal)
	c.pods[name].delete(c.t)
	began := time.Now()
	c.start(full, ordinal).awaitReady(c.t)
	c.checkMember(ordinal)
	c.t.Logf("%s ready again after %v", name, time.Since(began).Round(time.Millisecond))
}

// checkMember fails the test if a pod is ready as its probe has it, and its node says that it is not.
func (c *cluster) checkMember(ordinal int) {
	c.t.Helper()
	p := c.pods[fmt.Sprintf("%s-%d", full, ordinal)]
	resp, err := prober.Get("https://" + net.JoinHostPort(p.host, "8080") + "/readyz")
	if err != nil {
		c.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.t.Errorf("the pod %s is ready, and its node is not: %s", p.name, resp.Status)
	}
}
