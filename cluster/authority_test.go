package cluster

import (
	"testing"
	"time"
)

// TestDecisionLeaseTimeline follows the authority of a node that has two peers.
func TestDecisionLeaseTimeline(t *testing.T) {
	t0 := time.Unix(1000, 0)
	ms := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Millisecond) }
	type step struct {
		at    int
		do    func(a *authority, now time.Time)
		until int // of authority, as it is said at the instant
		due   bool
	}
	renew := func(a *authority, now time.Time) { a.look(now); a.renewed = now }
	answer := func(a *authority, now time.Time) { a.look(now); a.answered("b", now) }
	look := func(a *authority, now time.Time) { a.look(now) }
	home := func(a *authority, now time.Time) {
		if !a.home(now, a.lapses) {
			t.Errorf("not valid at %v", now)
		}
	}
	const away, term = int(awayAfter / time.Millisecond), int(authorityTerm / time.Millisecond)
	begin := []step{{0, renew, 0, true}, {1, home, 1 + away, false}}
	for _, tl := range []struct {
		name  string
		steps []step
	}{
		{"it begins when the standbys were heard", begin},
		{"a node that looks keeps it", append(begin[:2:2], step{100, look, 100 + away, false}, step{250, look, 250 + away, false})},
		{"a node that does not is suspended, until the standbys have answered", append(begin[:2:2],
			step{1 + away, look, 1 + away, true}, step{300, renew, 300, true}, step{350, answer, 350, true}, step{360, home, 360 + away, false})},
		{"witnesses that are gone end it, and others alone do not bring it back", append(begin[:2:2],
			step{150, look, 150 + away, false}, step{300, look, 300 + away, false}, step{450, look, 450 + away, false}, step{600, look, 600 + away, false},
			step{750, look, 750 + away, false}, step{900, look, 900 + away, false}, step{1050, look, 1050 + away, false}, step{1200, look, 1200 + away, false},
			step{1350, look, term, false}, step{term, look, term, false}, step{term + 50, answer, term + 50, true}, step{term + 60, home, term + 60 + away, false})},
	} {
		t.Run(tl.name, func(t *testing.T) {
			a := new(authority)
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
		a := new(authority)
		a.view([]string{"b", "c"}, true)
		renew(a, ms(0))
		lapses := a.lapses
		if a.home(ms(away), lapses) || a.until().After(ms(away)) {
			t.Error("what they have said before counts")
		}
	})
	t.Run("a node joins, and has not answered yet", func(t *testing.T) {
		a := new(authority)
		a.view([]string{"b", "c"}, true)
		answer(a, ms(0))
		a.home(ms(1), a.lapses)
		a.view([]string{"b", "c", "d"}, true)
		if look(a, ms(2)); a.away || !a.witnessed().Equal(ms(term)) {
			t.Errorf("away: %v, witnessed until %v", a.away, a.witnessed().Sub(t0))
		}
		a.answered("b", ms(100))
		if !a.witnessed().Equal(ms(term)) {
			t.Errorf("one of three others confirms the lease until %v", a.witnessed().Sub(t0))
		}
		if a.answered("d", ms(50)); !a.witnessed().Equal(ms(term + 50)) {
			t.Errorf("two of three others confirm the lease until %v", a.witnessed().Sub(t0))
		}
	})
	t.Run("alone", func(t *testing.T) {
		a := new(authority)
		a.view(nil, true)
		if a.look(ms(5000)); !a.until().IsZero() || a.away || a.returns(ms(9000), time.Second) {
			t.Errorf("until %v, away %v", a.until(), a.away)
		}
	})
}
