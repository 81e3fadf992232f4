package replica

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/view"
)

// TestLeaseTimeline follows the decision lease of a node that has two peers. Instants are milliseconds.
func TestLeaseTimeline(t *testing.T) {
	t0 := time.Unix(1000, 0)
	ms := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Millisecond) }
	a, b, c, d := view.Life{ID: "a", Incarnation: 1}, view.Life{ID: "b", Incarnation: 1}, view.Life{ID: "c", Incarnation: 1}, view.Life{ID: "d", Incarnation: 1}
	b2 := view.Life{ID: "b", Incarnation: 2}
	type step struct {
		at    int
		do    func(l Lease, now time.Time) Lease
		until int // 0 for not valid, -1 for ever
		due   bool
	}
	look := func(l Lease, now time.Time) Lease { return l }
	resume := func(l Lease, now time.Time) Lease { return l.Resume(now, l.Lapses) }
	renew := func(l Lease, now time.Time) Lease { return l.Renewed(now) }
	grant := func(l Lease, now time.Time) Lease { return l.Granted(now) }
	read := func(after int, number uint64) func(Lease, time.Time) Lease {
		return func(l Lease, now time.Time) Lease { return l.Read(ms(after), number) }
	}
	answer := func(by view.Life, number uint64, sent int) func(Lease, time.Time) Lease {
		return func(l Lease, now time.Time) Lease { return l.Answered(by, number, ms(sent)) }
	}
	adopt := func(number uint64, members ...view.Life) func(Lease, time.Time) Lease {
		return func(l Lease, now time.Time) Lease { return l.Adopt(number, members) }
	}
	begin := []step{{100, answer(b, 3, 50), 0, true}, {100, resume, 300, false}}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"a lease begins when the standbys were heard", begin},
		{"a node that does not look is suspended", []step{{299, look, 499, false}, {499, look, 0, true}, {510, resume, 710, false}}},
		{"a confirmation counts from when it was asked for", []step{
			{290, look, 490, false}, {480, look, 680, false}, {670, look, 870, false}, {860, look, 1060, false}, {1050, look, 1250, false},
			{1240, look, 1440, false}, {1430, look, 1550, false}, {1550, look, 0, false}, {1560, answer(c, 3, 1555), 0, true},
		}},
		{"a later life and a member that knows a newer view confirm nothing", []step{
			{290, answer(b2, 3, 280), 490, false}, {480, answer(c, 4, 470), 680, false}, {670, look, 870, false}, {860, look, 1060, false}, {1050, look, 1250, false},
			{1240, look, 1440, false}, {1430, look, 1550, false},
		}},
		{"what a majority has said before a view still counts", []step{{200, adopt(4, a, b, c, d), 400, false}, {210, answer(d, 4, 205), 410, false}}},
		{"a node that is no member has none", []step{
			{200, adopt(4, b, c), 0, false}, {210, answer(b, 4, 205), 0, false}, {220, adopt(5, a, b, c), 0, false},
			{230, resume, 0, false}, {240, answer(b, 5, 235), 0, true}, {250, resume, 450, false},
		}},
		{"the only member needs no witness", []step{{200, adopt(4, a), -1, false}, {9000, look, -1, false}}},
		{"an only member that is joined hears its standbys", []step{
			{200, adopt(4, a), -1, false}, {9000, look, -1, false}, {9010, adopt(5, a, b), 0, false}, {9020, answer(b, 5, 9015), 0, true}, {9030, resume, 9230, false},
		}},
		{"an etcd lease counts once the view was read after the grant", []step{
			{290, grant, 490, false}, {291, read(280, 3), 491, false}, {480, renew, 680, false}, {670, look, 870, false}, {860, read(850, 4), 1060, false},
			{1050, look, 1250, false}, {1240, look, 1440, false}, {1430, read(1420, 3), 1550, false}, {1500, renew, 1700, false},
			{1690, grant, 1890, false}, {1880, renew, 2080, false}, {2070, look, 2270, false}, {2260, look, 2460, false}, {2450, look, 2650, false},
			{2640, look, 2840, false}, {2830, look, 3000, false},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := NewLease(a).Adopt(3, []view.Life{a, b, c})
			steps := tc.steps
			if &steps[0] != &begin[0] {
				steps = append(begin[:2:2], steps...)
			}
			for i, s := range steps {
				l = s.do(l.Look(ms(s.at)), ms(s.at))
				until, forever := l.Until()
				got := 0
				switch {
				case forever:
					got = -1
				case !until.IsZero():
					got = int(until.Sub(t0) / time.Millisecond)
				}
				if got != s.until || l.Due() != s.due {
					t.Errorf("step %d, at %d ms: until %d, want %d; due %t", i, s.at, got, s.until, l.Due())
				}
			}
		})
	}
	t.Run("a second lapse while the standbys are asked", func(t *testing.T) {
		l := NewLease(a).Adopt(3, []view.Life{a, b, c}).Look(ms(100)).Answered(b, 3, ms(100))
		lapses := l.Lapses
		if l = l.Resume(ms(300), lapses); l.Valid(ms(300)) {
			t.Error("what they have said before it counts")
		}
	})
}

// A predecessor has ended a LeaseTime after its last witness.
func TestEnding(t *testing.T) {
	t0 := time.Unix(1000, 0)
	e := Ending{}.Observe(t0, false)
	if e.HasEnded(t0.Add(time.Hour)) {
		t.Error("it has ended although it may have witnesses")
	}
	e = e.Observe(t0, true).Observe(t0.Add(time.Second), true)
	if at := t0.Add(LeaseTime); e.HasEnded(at.Add(-1)) || !e.HasEnded(at) {
		t.Errorf("it has ended since %v", e.Since)
	}
	if e = e.Observe(t0.Add(LeaseTime), false); e.HasEnded(t0.Add(time.Hour)) {
		t.Error("it has ended although it may have witnesses again")
	}
}

// Valid reports whether the node may decide now what its newest view gives it.
func (l *Lease) Valid(now time.Time) bool {
	until, forever := l.Until()
	return forever || now.Before(until)
}
