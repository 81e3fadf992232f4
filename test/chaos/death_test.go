package chaos

import (
	"syscall"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// takeover is the time in which a dead owner is to have a successor.
const takeover = 8 * time.Second

// An owner that is killed is not missed: its standby answers at once, and a new owner follows.
func TestOwnerKilled(t *testing.T) {
	s := newStage(t, 4)
	f := startTraffic(t, s.nodes...)
	wait(calm)
	base := f.report("before", time.Time{})
	victim := s.nodes[1]
	f.without(victim)
	wait(calm / 4) // its own callers have their answers

	victim.Kill()
	killed := time.Now()
	s.drop(victim)
	_, took := s.settle(takeover)
	t.Logf("all partitions have owners again after %v", took.Round(time.Millisecond))
	first := f.seen(killed, killed.Add(time.Second))
	t.Logf("in the first second: %v", first)
	checkLatency(t, base, first)
	wait(calm)
	last := f.lastFrom(weirv1.Source_SOURCE_PROVISIONAL, weirv1.Source_SOURCE_STANDBY)
	switch {
	case last.Before(killed):
		t.Error("no standby has answered")
	case last.Sub(killed) > takeover:
		t.Errorf("a standby was asked %v after the owner was killed", last.Sub(killed))
	default:
		t.Logf("standbys have answered until %v after the owner was killed", last.Sub(killed).Round(time.Millisecond))
	}
	f.report("after the kill", killed)
	f.finish()
	f.noErrors()
	f.ledger.noneOver(t, killedAt(killed))
}

// An owner that is killed and restarted at once under its id does not bring an old token back.
func TestOwnerKilledAndRestarted(t *testing.T) {
	s := newStage(t, 3)
	f := startTraffic(t, s.nodes...)
	wait(calm)
	var kills []time.Time
	for i := range brief(6, 2) {
		victim := s.nodes[i%len(s.nodes)]
		f.without(victim)
		wait(calm / 4)
		victim.Kill()
		killed := time.Now()
		kills = append(kills, killed)
		victim.Restart()
		serves := time.Since(killed)
		f.with(victim)
		_, took := s.settle(takeover)
		f.report("since "+victim.ID+" was killed", killed)
		t.Logf("it serves after %v, all partitions have owners %v later", serves.Round(time.Millisecond), took.Round(time.Millisecond))
		wait(calm / 2)
	}
	f.finish()
	f.noErrors()
	f.ledger.noneOver(t, killedAt(kills...))
}

// An owner that was stopped for a while does not admit on what it has held before, if
// somebody else does by then.
func TestOwnerStopped(t *testing.T) {
	for _, d := range brief([]time.Duration{time.Second, 5 * time.Second, 20 * time.Second}, []time.Duration{time.Second, 7 * time.Second}) {
		t.Run(d.String(), func(t *testing.T) {
			s := newStage(t, 4)
			f := startTraffic(t, s.nodes...)
			wait(calm / 2)
			victim := s.nodes[1]
			victim.Signal(syscall.SIGSTOP)
			stopped := time.Now()
			// Its callers go on asking: what they get when it goes on must be right as well.
			wait(d)
			victim.Signal(syscall.SIGCONT)
			continued := time.Now()
			f.report("while it was stopped", stopped)
			_, took := s.settle(2 * takeover)
			t.Logf("all partitions have owners %v after it goes on", took.Round(time.Millisecond))
			wait(calm / 2)
			f.report("since it goes on", continued)
			f.finish()
			f.noErrors()
			f.ledger.noneOver(t, killedAt(stopped))
		})
	}
}
