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
	"github.com/weirlimit/weir/test/process"

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
	asked    map[string]int64 // by key
	granted  map[string]int64
	problems []string // errors and checks that no node has decided
}

func (l *load) ask(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[key]++
}

func (l *load) answer(key string, allowed bool, problem string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if allowed {
		l.granted[key]++
	}
	if problem != "" {
		l.problems = append(l.problems, time.Now().Format("05.000 ")+key+": "+problem)
	}
}

func startLoad(t testing.TB, c *cluster, config *tls.Config) *load {
	t.Helper()
	l := &load{t: t, asked: map[string]int64{}, granted: map[string]int64{}}
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
	every(clientEvery, func(number int) { l.checkByClient(grpc, fmt.Sprint(number%keys)) })
	every(httpEvery, func(number int) { l.checkByService(c, routed, fmt.Sprint(number%keys)) })
	l.stop = sync.OnceFunc(func() { cancel(); running.Wait(); _ = grpc.Close() })
	t.Cleanup(l.stop)
	return l
}

func (l *load) checkByClient(c *client.Client, key string) {
	l.ask("rolled " + key)
	answer, err := c.Check(context.Background(), &weirv1.RateLimitRequest{IdentifierType: "rolled", Identifier: key})
	problem := ""
	switch {
	case err != nil:
		problem = err.Error()
	case client.Undecided(answer):
		problem = "undecided: " + answer.GetSource().String()
	}
	l.answer("rolled "+key, answer.GetAllowed(), problem)
}

func (l *load) checkByService(c *cluster, h *http.Client, key string) {
	l.ask("routed " + key)
	allowed, err := checkByService(c, h, key)
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	l.answer("routed "+key, allowed, problem)
}

func checkByService(c *cluster, h *http.Client, key string) (allowed bool, err error) {
	hosts := c.endpoints()
	if len(hosts) == 0 {
		return false, fmt.Errorf("the Service has no endpoint")
	}
	body := `{"identifier_type":"routed","identifier":"` + key + `"}`
	resp, err := h.Post("https://"+net.JoinHostPort(hosts[rand.IntN(len(hosts))], "8080")+"/v1/check", "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, err
	}
	var answer struct {
		Allowed bool
		Source  string
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
		return false, fmt.Errorf("%s: %s", resp.Status, text)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return false, err
	}
	switch answer.Source {
	case "SOURCE_OWNER", "SOURCE_LENT", "SOURCE_RELAYED", "SOURCE_PROVISIONAL", "SOURCE_DENIAL_LEASE":
		return answer.Allowed, nil
	}
	return false, fmt.Errorf("undecided: %s", text)
}

// check fails the test if a caller got an error or no decision, or if a limit was exceeded or not used up.
func (l *load) check() {
	l.t.Helper()
	l.stop()
	var asked, granted int64
	for key, n := range l.asked {
		asked, granted = asked+n, granted+l.granted[key]
		if got, want := l.granted[key], min(n, limit); got != want {
			l.t.Errorf("%s: %d of %d were allowed, want %d", key, got, n, want)
		}
	}
	for i, problem := range l.problems {
		if i == 20 {
			break
		}
		l.t.Error(problem)
	}
	l.t.Logf("%d checks, %d allowed, %d errors or undecided", asked, granted, len(l.problems))
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
etcd: {bundled: {replicas: 1}}
preStopSleepSeconds: 1
minReadySeconds: 1
probes: {startup: {periodSeconds: 1}, readiness: {periodSeconds: 1}}
`
	}
	return values
}

// A rolling update, as a StatefulSet does it with the pods, probes and times of the chart: no caller notices. After it etcd is gone:
// no probe has a pod killed, and a pod that is replaced serves again without etcd.
func TestRollingUpdate(t *testing.T) {
	if !form.Full() {
		process.NotInBrief(t)
	}
	process.NotWhileRacing(t)
	t.Parallel() // it waits most of the time
	c := newCluster(t, fmt.Sprintf(rollingValues(), "log-level: info"))
	config := c.certify()
	set := c.set(full)
	if c.late = 500 * time.Millisecond; form.Full() {
		c.late = 4500 * time.Millisecond
	}
	c.startAll(full + "-etcd")
	c.startAll(full)
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
