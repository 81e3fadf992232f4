package helm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/weirlimit/weir/test/process"
)

// substitution has what stands on this machine for what a Kubernetes cluster has: pairs of a text and its replacement, the longer
// texts first.
type substitution []string

func (s substitution) in(text string) string { return strings.NewReplacer(s...).Replace(text) }

// pod is one pod of a StatefulSet, run as a process by what the StatefulSet says of it.
type pod struct {
	name, host string
	spec       corev1.PodSpec
	env        []string
	args       []string

	cmd    *exec.Cmd
	log    *os.File
	ended  chan struct{}
	err    error // of the process, once ended is closed
	probed sync.WaitGroup

	live    atomic.Bool  // it runs, and was not deleted
	ready   atomic.Bool  // by its readiness probe
	deleted atomic.Int64 // when, in nanoseconds of Unix time; 0: it is not

	mu     sync.Mutex
	killed []string // why a kubelet would have killed it; guarded by mu
}

// newPod reads what the StatefulSet says of the pod of that number.
func newPod(s *appsv1.StatefulSet, ordinal int, sub substitution) *pod {
	p := &pod{name: fmt.Sprintf("%s-%d", s.Name, ordinal), spec: s.Spec.Template.Spec, ended: make(chan struct{})}
	c := p.spec.Containers[0]
	values := map[string]string{}
	expand := func(text string) string {
		for name, value := range values {
			text = strings.ReplaceAll(text, "$("+name+")", value)
		}
		return text
	}
	for _, e := range c.Env {
		value := expand(e.Value)
		if e.ValueFrom != nil {
			if e.ValueFrom.FieldRef.FieldPath != "metadata.name" {
				panic("the test does not know " + e.ValueFrom.FieldRef.FieldPath)
			}
			value = p.name
		}
		values[e.Name] = value
		p.env = append(p.env, e.Name+"="+sub.in(value))
	}
	for _, a := range c.Args {
		p.args = append(p.args, sub.in(expand(a)))
	}
	return p
}

// variable returns the value of an environment variable.
func (p *pod) variable(name string) string {
	for _, v := range p.env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// start runs the pod's process, and its probes as a kubelet does.
func (p *pod) start(t testing.TB) {
	t.Helper()
	c := p.spec.Containers[0]
	binary, env := process.Binary(t), p.env
	if len(c.Command) > 0 && strings.HasSuffix(c.Command[0], "/etcd") {
		binary, env = os.Args[0], append(slices.Clone(env), asEtcd+"=1")
	}
	var err error
	if p.log, err = os.CreateTemp(t.TempDir(), p.name); err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(binary, p.args...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.live.Store(true)
	go func() {
		p.err = p.cmd.Wait()
		p.ready.Store(false)
		close(p.ended)
	}()
	p.probed.Go(p.probe)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text, _ := os.ReadFile(p.log.Name())
			t.Logf("log of %s:\n%s", p.name, text[max(0, len(text)-8000):])
		}
		_ = p.log.Close()
	})
}

// kill ends the process as a crash would.
func (p *pod) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
	p.probed.Wait()
}

// probe asks the probes one after the other as long as the process runs.
func (p *pod) probe() {
	c := p.spec.Containers[0]
	for failures := int32(0); !p.succeeds(c.StartupProbe); {
		if failures++; failures == c.StartupProbe.FailureThreshold {
			p.note("startup")
			return
		}
		if !p.wait(seconds(c.StartupProbe.PeriodSeconds)) {
			return
		}
	}
	p.probed.Go(func() {
		p.repeat(c.LivenessProbe, func(ok bool) {
			if !ok {
				p.note("liveness")
			}
		})
	})
	p.repeat(c.ReadinessProbe, p.ready.Store)
}

// repeat asks a probe until the process ends, and says when its verdict changes.
func (p *pod) repeat(probe *corev1.Probe, verdict func(ok bool)) {
	for failures := int32(0); ; {
		switch {
		case p.succeeds(probe):
			failures = 0
			verdict(true)
		case failures+1 >= probe.FailureThreshold:
			verdict(false)
		default:
			failures++
		}
		if !p.wait(seconds(probe.PeriodSeconds)) {
			return
		}
	}
}

// wait reports whether the process still runs after a time.
func (p *pod) wait(d time.Duration) bool {
	select {
	case <-p.ended:
		return false
	case <-time.After(d):
		return true
	}
}

func (p *pod) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deleted.Load() == 0 { // a process that ends may not answer
		p.killed = append(p.killed, fmt.Sprintf("%s by its %s probe", p.name, what))
	}
}

// prober asks as a kubelet does: on a new connection, without a certificate, and verifying none.
var prober = &http.Client{Transport: &http.Transport{
	DisableKeepAlives: true,
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
}}

func (p *pod) succeeds(probe *corev1.Probe) bool {
	port := probe.HTTPGet.Port.String()
	for _, known := range p.spec.Containers[0].Ports {
		if known.Name == port {
			port = fmt.Sprint(known.ContainerPort)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(time.Second, seconds(probe.TimeoutSeconds)))
	defer cancel()
	scheme := strings.ToLower(string(probe.HTTPGet.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(p.host, port)+probe.HTTPGet.Path, nil)
	if err != nil {
		panic(err)
	}
	resp, err := prober.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode >= 200 && resp.StatusCode < 400
}

// delete ends the pod as Kubernetes does: preStop, SIGTERM, and a kill at the end of the grace period, which fails the test.
func (p *pod) delete(t testing.TB) {
	t.Helper()
	began := time.Now()
	p.deleted.Store(began.UnixNano())
	if l := p.spec.Containers[0].Lifecycle; l != nil {
		p.wait(seconds(l.PreStop.Sleep.Seconds))
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("%s has ended before SIGTERM: %v", p.name, err)
	}
	grace := seconds(*p.spec.TerminationGracePeriodSeconds)
	select {
	case <-p.ended:
		if p.err != nil {
			t.Errorf("%s: %v", p.name, p.err)
		}
	case <-time.After(grace - time.Since(began)):
		t.Errorf("%s has not ended after %v", p.name, grace)
		p.kill()
	}
	p.probed.Wait()
	t.Logf("%s ended %v after it was deleted", p.name, time.Since(began).Round(time.Millisecond))
}

// awaitReady waits until the pod is ready.
func (p *pod) awaitReady(t testing.TB) {
	t.Helper()
	process.Await(t, process.Patience, func() error {
		select {
		case <-p.ended:
			text, _ := os.ReadFile(p.log.Name())
			return fmt.Errorf("%s has ended: %v\n%s", p.name, p.err, text)
		default:
		}
		if !p.ready.Load() {
			return errors.New(p.name + " is not ready")
		}
		return nil
	})
}

// files are the contents of a Secret or ConfigMap.
type files map[string][]byte

// mount writes a volume as a kubelet does: behind a link, which it replaces as a whole when the contents change.
func mount(t testing.TB, dir string, contents files) {
	t.Helper()
	version, err := os.MkdirTemp(dir, "..version")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range contents {
		if err := os.WriteFile(filepath.Join(version, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(version), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}
