package cluster

import (
	"testing"
	"time"
)

// TestDecisionLeaseTimeline follows the decision lease of a node that has two peers.
func TestDecisionLeaseTimeline(t *testing.T) {
	t0 := time.Unix(1000, 0)
	ms := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Millisecond) }
	type step struct {
		at    int
		do    func(a *decisionLease, now time.Time)
		until int // of the lease, as it is said at the instant
		due   bool
	}
	renew := func(a *decisionLease, now time.Time) { a.look(now); a.renewed = now }
	answer := func(a *decisionLease, now time.Time) { a.look(now); a.answered("b", now) }
	look := func(a *decisionLease, now time.Time) { a.look(now) }
	resume := func(a *decisionLease, now time.Time) {
		if !a.resume(now, a.lapses) {
			t.Errorf("not valid at %v", now)
		}
	}
	const suspend, lease = int(suspendAfter / time.Millisecond), int(decisionLeaseTime / time.Millisecond)
	begin := []step{{0, renew, 0, true}, {1, resume, 1 + suspend, false}}
	for _, tl := range []struct {
		name  string
		steps []step
	}{
		{"it begins when the standbys were heard", begin},
		{"a node that looks keeps it", append(begin[:2:2], step{100, look, 100 + suspend, false}, step{250, look, 250 + suspend, false})},
		{"a node that does not is suspended, until the standbys have answered", append(begin[:2:2],
			step{1 + suspend, look, 1 + suspend, true}, step{300, renew, 300, true}, step{350, answer, 350, true}, step{360, resume, 360 + suspend, false})},
		{"witnesses that are gone end it, and others alone do not bring it back", append(begin[:2:2],
			step{150, look, 150 + suspend, false}, step{300, look, 300 + suspend, false}, step{450, look, 450 + suspend, false}, step{600, look, 600 + suspend, false},
			step{750, look, 750 + suspend, false}, step{900, look, 900 + suspend, false}, step{1050, look, 1050 + suspend, false}, step{1200, look, 1200 + suspend, false},
			step{1350, look, lease, false}, step{lease, look, lease, false}, step{lease + 50, answer, lease + 50, true}, step{lease + 60, resume, lease + 60 + suspend, false})},
	} {
		t.Run(tl.name, func(t *testing.T) {
			a := new(decisionLease)
			a.view([]string{"b", "c"}, true)
			for i, s := range tl.steps {
				s.do(a, ms(s.at))
				if got := a.until(); !got.Equal(ms(s.until)) || a.due() != s.due {
					t.Errorf("step %d, at %d ms: until %v, want %d ms; due: %v", i, s.at, got.Sub(t0), s.until, a.due())
				}
			}
		})
	}
	t.Run("a second absence while the standbys are asked", func(t *testing.T) {
		a := new(decisionLease)
		a.view([]string{"b", "c"}, true)
		renew(a, ms(0))
		lapses := a.lapses
		if a.resume(ms(suspend), lapses) || a.until().After(ms(suspend)) {
			t.Error("what they have said before counts")
		}
	})
	t.Run("a node joins, and has not answered yet", func(t *testing.T) {
		a := new(decisionLease)
		a.view([]string{"b", "c"}, true)
		answer(a, ms(0))
		a.resume(ms(1), a.lapses)
		a.view([]string{"b", "c", "d"}, true)
		if look(a, ms(2)); a.suspended || !a.witnessed().Equal(ms(lease)) {
			t.Errorf("suspended: %v, witnessed until %v", a.suspended, a.witnessed().Sub(t0))
		}
		a.answered("b", ms(100))
		if !a.witnessed().Equal(ms(lease)) {
			t.Errorf("one of three others confirms the lease until %v", a.witnessed().Sub(t0))
		}
		if a.answered("d", ms(50)); !a.witnessed().Equal(ms(lease + 50)) {
			t.Errorf("two of three others confirm the lease until %v", a.witnessed().Sub(t0))
		}
	})
	t.Run("alone", func(t *testing.T) {
		a := new(decisionLease)
		a.view(nil, true)
		if a.look(ms(5000)); !a.until().IsZero() || a.suspended || a.returns(ms(9000), time.Second) {
			t.Errorf("until %v, suspended %v", a.until(), a.suspended)
		}
	})
}
