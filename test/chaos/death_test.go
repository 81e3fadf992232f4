package chaos

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// takeover is the time in which a dead owner is to have a successor.
const takeover = 8 * time.Second

// An owner that is killed is not missed: its standby answers at once, and a new owner follows.
func TestOwnerKilled(t *testing.T) {
	s := newStage(t, 4)
	f := s.startTraffic()
	wait(calm())
	base := f.report("before", time.Time{})
	victim := s.nodes[1]
	f.without(victim)

	victim.Kill()
	killed := time.Now()
	s.drop(victim)
	_, took := s.settle(takeover)
	t.Logf("all partitions have owners again after %v", took.Round(time.Millisecond))
	first := f.seen(killed, killed.Add(time.Second))
	t.Logf("in the first second: %v", first)
	checkLatency(t, base, first)
	wait(calm())
	last := f.lastFrom(weirv1.Source_SOURCE_PROVISIONAL, weirv1.Source_SOURCE_RELAYED)
	switch {
	case last.Before(killed):
		t.Error("no standby has answered")
	case last.Sub(killed) > takeover && f.paceOf(killed, last) >= enoughPace:
		t.Errorf("a standby was asked %v after the owner was killed", last.Sub(killed))
	default:
		t.Logf("standbys have answered until %v after the owner was killed", last.Sub(killed).Round(time.Millisecond))
	}
	f.report("after the kill", killed)
	f.finish()
	f.noErrors()
	f.ledger.noneOver(t, f.afterDeath(killed))
}

// With the time for each other that nodes have unless configured otherwise, an owner is late now and then,
// on a machine without enough processors. A late check is decided by a standby, which reports its grants to
// the owner, or allowed by its failure policy and marked. No caller sees an error, except that a node may have no time for a check
// while the machine is too busy, and the limits hold.
func TestOwnerKilledAndOthersLate(t *testing.T) {
	notInBrief(t)
	shareMachine(t)
	s := newStageOf(t, 3, 25*time.Millisecond)
	f := s.startLenientTraffic()
	wait(calm())
	victim := s.nodes[1]
	f.without(victim)
	victim.Kill()
	killed := time.Now()
	s.drop(victim)
	_, took := s.settle(takeover)
	t.Logf("all partitions have owners again after %v", took.Round(time.Millisecond))
	wait(calm())
	f.finish()
	g := f.report("in all", time.Time{})
	if g.errors > 0 {
		t.Errorf("%d checks with errors; the first: %q", g.errors, f.firsts)
	}
	if others := g.undecided() - g.sources[weirv1.Source_SOURCE_FAIL_OPEN]; others > 0 {
		t.Errorf("%d undecided checks are not marked: %v", others, g)
	}
	t.Logf("%.2f %% of the checks were allowed by their policy", 100*float64(g.undecided())/float64(g.checks))
	dead := f.afterDeath(killed)
	f.ledger.noneOver(t, func(a *account) int { return a.apart + dead(a) })
}

// An owner that is killed and restarted at once under its id does not decide by what it had.
func TestOwnerKilledAndRestarted(t *testing.T) {
	notInBrief(t)
	shareMachine(t)
	s := newStage(t, 3)
	f := s.startTraffic()
	wait(calm())
	var kills []time.Time
	for i := range brief(6, 1) {
		victim := s.nodes[i%len(s.nodes)]
		f.without(victim)
		victim.Kill()
		killed := time.Now()
		kills = append(kills, killed)
		victim.Restart()
		serves := time.Since(killed)
		f.with(victim)
		_, took := s.settle(takeover)
		f.report("since "+victim.ID+" was killed", killed)
		t.Logf("it serves after %v, all partitions have owners %v later", serves.Round(time.Millisecond), took.Round(time.Millisecond))
		wait(calm() / 2)
	}
	f.finish()
	f.noErrors()
	f.ledger.noneOver(t, f.afterDeath(kills...))
}

// mostJoins bounds how many nodes join until one is seen while partitions are on their way to it.
const mostJoins = 5

// awaitMoves starts nodes until partitions are on their way to one, and returns that. The final states take some
// milliseconds, so one look after another is taken without a pause, and all of them may be missed.
func (s *stage) awaitMoves() (joined *process.Node) {
	s.t.Helper()
	for range mostJoins {
		joined = s.start(fmt.Sprint("node-", len(s.nodes)+1))
		s.nodes = append(s.nodes, joined)
		if seesMoves(joined) {
			return joined
		}
	}
	s.t.Fatalf("%d nodes have joined, and no partition was seen on its way", mostJoins)
	return nil
}

// seesMoves looks at a node that joins, and reports whether it was seen after it became an owner and before it decided for all that it owns.
func seesMoves(joined *process.Node) bool {
	for began := time.Now(); time.Since(began) < hung; {
		for _, m := range joined.Nodes().GetNodes() {
			switch {
			case m.GetId() != joined.ID || m.GetPartitions() == 0:
			case m.GetPartitions() > m.GetActive():
				return true
			case m.GetWanted() == 0: // no later view moves more
				return false
			}
		}
	}
	return false
}

// An owner that dies while its partitions are on their way to another node is one that dies.
func TestOldOwnerKilledWhilePartitionsMove(t *testing.T) {
	form.FullOnly(t)
	s := newStage(t, 3)
	f := s.startTraffic()
	wait(calm())
	victim := s.nodes[1]
	f.without(victim)
	s.awaitMoves()
	s.killWhilePartitionsMove(f, victim)
}

// If a new owner dies before it has the final state, another one gets it.
func TestNewOwnerKilledWhilePartitionsMove(t *testing.T) {
	form.FullOnly(t)
	s := newStage(t, 3)
	f := s.startTraffic()
	wait(calm())
	s.killWhilePartitionsMove(f, s.awaitMoves())
}

// killWhilePartitionsMove kills a node, and looks whether the others settle without it.
func (s *stage) killWhilePartitionsMove(f *traffic, victim *process.Node) {
	s.t.Helper()
	victim.Kill()
	killed := time.Now()
	s.drop(victim)
	_, took := s.settle(takeover)
	s.t.Logf("all partitions have owners again after %v", took.Round(time.Millisecond))
	wait(calm() / 2)
	f.report("after the kill", killed)
	f.finish()
	f.noErrors()
	f.ledger.noneOver(s.t, f.afterDeath(killed))
}

// An owner that was stopped for a while does not admit before it knows what its standbys have granted
// meanwhile, nor at all on its old replica, if another node is the owner by then. Grants not replicated
// when it is stopped are lost as if it had been killed.
func TestOwnerStopped(t *testing.T) {
	notInBrief(t)
	shareMachine(t)
	for _, d := range brief([]time.Duration{time.Second, 5 * time.Second, 7 * time.Second, 20 * time.Second}, []time.Duration{7 * time.Second}) {
		t.Run(d.String(), func(t *testing.T) {
			s := newStage(t, 4)
			f := s.startTraffic()
			wait(calm() / 2)
			view, _ := s.settle(healed)
			victim := s.nodes[1]
			victim.Signal(syscall.SIGSTOP)
			stopped := time.Now()
			// Its callers go on asking: what they get when it goes on must be right as well.
			wait(d)
			victim.Signal(syscall.SIGCONT)
			continued := time.Now()
			f.report("while it was stopped", stopped)
			now, took := s.settle(healed)
			t.Logf("all partitions have owners %v after it goes on; view %d, before %d", took.Round(time.Millisecond), now, view)
			wait(calm() / 2)
			f.report("since it goes on", continued)
			f.finish()
			f.noErrors(victim) // a caller that had asked it just before was allowed when it went on
			f.ledger.noneOver(t, f.afterDeath(stopped))
		})
	}
}
