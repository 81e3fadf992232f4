package chaos

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

// leaveWithin is how long a node may take to leave.
const leaveWithin = 10 * time.Second

// mostMoved is how much more may move than an ideal ring would have to.
const mostMoved = 1.25

// Nodes that join and leave in peace are not noticed: nothing is granted twice, nothing fails.
func TestMembersComeAndGo(t *testing.T) {
	form.FullOnly(t)
	s := newStage(t, 3)
	f := s.startTraffic()
	before := f.rest("3 nodes")
	change := func(heading string, ideal float64, do func()) {
		began, was := time.Now(), owners(t, s.nodes[0])
		do()
		g := f.report(heading, began)
		checkMoved(t, was, owners(t, s.nodes[0]), ideal)
		after := f.rest(fmt.Sprintf("%d nodes", len(s.nodes)))
		checkLatency(t, g, before, after)
		before = after
	}
	for _, n := range []int{4, 5} {
		change(fmt.Sprintf("node-%d comes", n), 1/float64(n), func() { f.with(s.join(1)[0]) })
	}
	for _, n := range []int{5, 4} {
		change(fmt.Sprintf("node-%d leaves", n), 1/float64(n), func() { s.leave(f, s.nodes[n-1]) })
	}
	f.finish()
	f.noErrors()
	f.exact()
}

// rest has nothing happen for a while, and says what callers have seen.
func (f *traffic) rest(heading string) figures {
	f.t.Helper()
	began := time.Now()
	wait(calm())
	return f.report(heading, began)
}

// All nodes are restarted, one after the other.
func TestRollingRestart(t *testing.T) {
	notInBrief(t)
	shareMachine(t)
	rollingRestart(t, (*process.Node).Restart)
}

// All nodes are restarted, one after the other and each at another address, as by Kubernetes.
func TestRollingRestartElsewhere(t *testing.T) {
	notInBrief(t)
	shareMachine(t)
	rollingRestart(t, (*process.Node).RestartElsewhere)
}

func rollingRestart(t *testing.T, restart func(*process.Node)) {
	t.Helper()
	s := newStage(t, 3)
	f := s.startTraffic()
	for range brief(3, 1) {
		before := f.rest("before")
		for _, n := range s.nodes {
			began := time.Now()
			n.Signal(syscall.SIGTERM)
			f.withoutOnceUnready(n)
			if code := f.awaitEnd(n); code != 0 {
				t.Errorf("%s: exit code %d", n.ID, code)
			}
			left := time.Since(began)
			restart(n)
			f.with(n)
			_, took := s.settle(healed)
			g := f.report(fmt.Sprintf("%s restarted, gone after %v, all moved %v after it served again", n.ID,
				left.Round(time.Millisecond), took.Round(time.Millisecond)), began)
			checkLatency(t, g, before)
		}
	}
	wait(calm())
	f.finish()
	f.noErrors()
	f.exact()
}

// awaitEnd waits until a node that is told to has left and ended, and returns its exit code.
func (f *traffic) awaitEnd(n *process.Node) (code int) {
	f.t.Helper()
	began := time.Now()
	code = n.Wait(hung)
	f.checkPromise("to leave", leaveWithin, began)
	return code
}

// leave has a node leave and end.
func (s *stage) leave(f *traffic, n *process.Node) {
	s.t.Helper()
	n.Signal(syscall.SIGTERM)
	f.withoutOnceUnready(n)
	if code := f.awaitEnd(n); code != 0 {
		s.t.Errorf("%s: exit code %d", n.ID, code)
	}
	s.drop(n)
	s.settle(healed)
}

// checkMoved fails the test if much more has moved than that share of all.
func checkMoved(t *testing.T, before, after []string, ideal float64) {
	t.Helper()
	n := moved(before, after)
	t.Logf("moved %d of %d partitions, %.2f times the ideal", n, len(before), float64(n)/(ideal*float64(len(before))))
	if most := mostMoved * ideal * float64(len(before)); float64(n) > most {
		t.Errorf("moved %d of %d partitions, at most %.0f are to", n, len(before), most)
	}
}

// Nodes that join and leave all the time leave nothing behind.
func TestMembersFlap(t *testing.T) {
	form.FullOnly(t)
	const every = 2 * time.Second
	s := newStage(t, 3)
	f := s.startTraffic()
	began, turns := time.Now(), 0
	for ; time.Since(began) < time.Minute; turns++ {
		n := s.start(fmt.Sprintf("guest-%d", turns%3)) // some come again under their ids
		f.with(n)
		wait(every / 2)
		n.Signal(syscall.SIGTERM)
		f.withoutOnceUnready(n)
		if code := f.awaitEnd(n); code != 0 {
			t.Errorf("%s: exit code %d", n.ID, code)
		}
	}
	_, took := s.settle(healed)
	t.Logf("%d nodes came and went in %v; settled %v later", turns, time.Since(began).Round(time.Second), took.Round(time.Millisecond))
	f.finish()
	f.noErrors()
	f.exact()
}
