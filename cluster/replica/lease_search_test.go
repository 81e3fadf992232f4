package replica

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/internal/testform"
)

// leaseRule is a rule without which the search of decision leases must find a fault.
type leaseRule string

const (
	leaseMembers   leaseRule = "members change only as fast as they adopt"
	leaseHalf      leaseRule = "half of the members is rounded up"
	leaseLast      leaseRule = "the members before the last change count"
	leaseNonMember leaseRule = "a node that is no member decides nothing"
	leaseNewer     leaseRule = "a member that knows a newer view confirms nothing"
	leaseLife      leaseRule = "a later life of a member confirms nothing"
	leaseRead      leaseRule = "an etcd lease that is granted again counts once the view was read"
	leaseBegan     leaseRule = "that read began after the grant"
	leaseGone      leaseRule = "the etcd lease was gone after the view was written"
	leaseWait      leaseRule = "a predecessor has ended when it has had no witness for a while"
	leaseSent      leaseRule = "a confirmation counts from when it was asked for"
	leaseClock     leaseRule = "a node that has not looked at its clock for a while is suspended"
	leaseStandby   leaseRule = "a suspended node hears its standbys"
	leaseAgain     leaseRule = "what standbys have said before a second lapse does not count"
	leaseDeparted  leaseRule = "a node that has said that it leaves confirms nothing"
	leaseJoined    leaseRule = "the only member is suspended when another node joins"
	leaseNewest    leaseRule = "a wiped etcd gets the newest view"
)

// leaseSearch drives Lease, Ending, view.Next and View.HaveLeft through all that members, etcd and time may do.
type leaseSearch struct {
	start                    int   // members at first
	nodes                    int   // those and nodes that may join
	steps                    uint8 // of time
	regrants, pauses, wipes  uint8
	restarts, leaves, delays bool
	full                     int                                 // members for which there is room, 0 for any number
	begin                    func(s *leaseSearch, w *leaseWorld) // changes the state in which it begins, if not nil
	most                     int
	broken                   leaseRule

	views    []*view.View
	indices  map[string]uint16
	written  map[leaseKey][]uint16
	haveLeft map[leaseLeft]bool
}

type leaseKey struct {
	last              uint16
	adopted, earlier  [leaseNodes]uint8
	restarts          [leaseNodes]uint8
	departed, written uint8
}

type leaseLeft struct {
	view             uint16
	adopted, earlier [leaseNodes]uint8
	restarts         [leaseNodes]uint8
	lost             uint8
}

func (s *leaseSearch) view(w *leaseWorld, number uint8) *view.View { return s.views[w.views[number-1]] }

func (s *leaseSearch) intern(v *view.View) uint16 {
	key := fmt.Sprintf("%+v", *v)
	if i, found := s.indices[key]; found {
		return i
	}
	s.views = append(s.views, v)
	s.indices[key] = uint16(len(s.views) - 1)
	return s.indices[key]
}

// first is a cluster whose node a decides by all witnesses that it may have.
func (s *leaseSearch) first() leaseWorld {
	var members []view.Member
	for i := range s.start {
		members = append(members, view.Member{Life: view.Life{ID: string(rune('a' + i)), Incarnation: 1}})
	}
	v := view.First(members, view.Plan{{Owner: "a", Standby: "b"}})
	v.Partitions[0].Standby = view.Life{ID: "b", Incarnation: 1}
	w := leaseWorld{written: 1, etcd: true, counts: true, granted: true, before: expired}
	w.views[0] = s.intern(v)
	for i := range leaseNodes {
		w.heard[i] = expired
		if i < s.start {
			w.adopted[i] = 1
			w.heard[i] = 0
		}
	}
	w.heard[0] = expired
	if s.begin != nil {
		s.begin(s, &w)
	}
	return w
}

// afterRemoval has a be owner although it is no member: d, its predecessor, is back, and there was no room for it.
func afterRemoval(s *leaseSearch, w *leaseWorld) {
	v := *s.view(w, 1)
	d := view.Life{ID: "d", Incarnation: 1}
	v.Members = append(slices.Clip(v.Members), view.Member{Life: d, State: view.Gone})
	v.Partitions = []view.Partition{{Owner: w.life(0), Term: 1, Predecessors: []view.Life{d}}}
	seen := view.Seen{Most: s.full, Nodes: []view.Member{{Life: w.life(0), State: view.Gone}, {Life: w.life(2)}, {Life: d}}}
	next, _ := view.Next(&v, seen, w.reports(view.Set{0}, nil), view.Plan{{Owner: "a", Standby: "b"}})
	w.views[0], w.views[1] = s.intern(&v), s.intern(next)
	w.written, w.adopted = 2, [leaseNodes]uint8{2, 2, 2, 0}
}

type leaseEmit func(leaseWorld, string)

func (s *leaseSearch) run() (states int, complete bool, problem string) {
	s.indices, s.written, s.haveLeft, s.views = make(map[string]uint16), make(map[leaseKey][]uint16), make(map[leaseLeft]bool), nil
	first := s.first()
	seen := map[leaseWorld]int32{first: -1}
	queue := []leaseWorld{first}
	for at := 0; at < len(queue); at++ {
		if s.most > 0 && len(queue) >= s.most {
			return len(queue), false, ""
		}
		x := queue[at]
		s.successors(&x, func(y leaseWorld, why string) {
			s.observe(&y)
			if _, found := seen[y]; found || problem != "" {
				return
			}
			seen[y] = int32(at)
			queue = append(queue, y)
			if problem = s.fault(&y); problem != "" {
				problem += ": " + why + s.trace(queue, seen, len(queue)-1)
			}
		})
		if problem != "" {
			return len(queue), false, problem
		}
	}
	return len(queue), true, ""
}

func (s *leaseSearch) trace(queue []leaseWorld, seen map[leaseWorld]int32, at int) (text string) {
	for i := int32(at); i >= 0; i = seen[queue[i]] {
		text = queue[i].format(s) + text
	}
	return text
}

// fault returns what is wrong: a decides although a successor takes it for ended, or without what its standby has granted.
func (s *leaseSearch) fault(w *leaseWorld) string {
	if !s.decides(w) {
		return ""
	}
	switch {
	case w.begun:
		return "two decide"
	case w.unheard && s.view(w, w.adopted[0]).IsMember(w.life(1)): // a standby that is gone cannot be heard
		return "a grant of the standby is unknown to the owner"
	}
	return ""
}

func (s *leaseSearch) decides(w *leaseWorld) bool {
	p := s.view(w, w.adopted[0]).Partitions[0]
	l := s.lease(w)
	return !w.stopped && p.Owner == w.life(0) && p.Term == 1 && l.Valid(leaseNow)
}

// observe has all that may be successors look whether a has ended. They know all that can be known.
func (s *leaseSearch) observe(w *leaseWorld) {
	if w.lost == 0 {
		return
	}
	w.goneSince = w.goneSince || !w.etcd
	if !w.over && (w.goneSince || s.broken == leaseGone && w.gone) {
		w.over = s.left(w)
	}
	e := Ending{}.Observe(leaseNow.Add(-time.Duration(w.held)*leaseTick), w.over)
	w.begun = w.begun || e.HasEnded(leaseNow) || s.broken == leaseWait && w.over
}

// left reports whether some view that a successor may have adopted says that no majority confirms a's lease.
func (s *leaseSearch) left(w *leaseWorld) bool {
	for number := w.lost; number <= w.written; number++ {
		key := leaseLeft{w.views[number-1], w.adopted, w.earlier, w.restarts, w.lost}
		left, found := s.haveLeft[key]
		if !found {
			left = s.leftBy(s.view(w, number), uint64(w.lost), w.reports(nil, nil))
			s.haveLeft[key] = left
		}
		if left {
			return true
		}
	}
	return false
}

func (s *leaseSearch) leftBy(v *view.View, lost uint64, reports view.Reports) bool {
	switch s.broken {
	case leaseLast:
		other := *v
		other.Changed, other.Before = 1, nil
		return other.HaveLeft(lost, reports)
	case leaseHalf:
		other := *v
		if len(other.Before) > 0 { // one more counts as past
			other.Ended = append(slices.Clip(other.Ended), other.Before[0])
		}
		return other.HaveLeft(lost, reports)
	}
	return v.HaveLeft(lost, reports)
}

func (s *leaseSearch) successors(x *leaseWorld, visit leaseEmit) {
	s.write(x, visit)
	s.nodesDo(x, visit)
	s.ownerDoes(x, visit)
	s.etcdDoes(x, visit)
	if x.time < s.steps {
		y := *x
		s.tick(&y)
		visit(y, "time goes on")
	}
}

func (s *leaseSearch) tick(w *leaseWorld) {
	older := func(age *uint8) { *age = min(*age+1, expired) }
	w.time++
	for i := range w.heard {
		older(&w.heard[i])
	}
	older(&w.before)
	older(&w.renewed)
	if w.answer.by != 0 {
		if w.answer.age++; w.answer.age >= expired {
			w.answer = leaseAnswer{}
		}
	}
	if w.over {
		w.held = min(w.held+1, expired)
	}
	w.paused = w.stopped
	if !w.stopped { // it looks at its clock all the time
		l := s.lease(w).Look(leaseNow)
		w.keep(&l)
	}
}

// write has the writer of views write what Next says.
func (s *leaseSearch) write(x *leaseWorld, visit leaseEmit) {
	if x.written == leaseViews || x.wiped {
		return
	}
	key := leaseKey{x.views[x.written-1], x.adopted, x.earlier, x.restarts, x.departed, x.written}
	indices, found := s.written[key]
	if !found {
		indices = s.follow(x)
		s.written[key] = indices
	}
	for _, index := range indices {
		s.publish(x, index, visit, "a view is written")
	}
}

func (s *leaseSearch) publish(x *leaseWorld, index uint16, visit leaseEmit, why string) {
	y := *x
	y.views[y.written] = index
	y.written++
	if y.lost == 0 && s.views[index].Partitions[0].Owner != y.life(0) {
		y.lost = y.written
	}
	visit(y, why)
}

func (s *leaseSearch) follow(x *leaseWorld) (indices []uint16) {
	last := *s.view(x, x.written)
	if s.broken == leaseMembers {
		last.Waived = last.Number
	}
	var settled view.Set
	if last.Partitions[0].Term == 1 { // no later owner settles
		settled = view.Set{0}
	}
	for _, complete := range []view.Set{{0}, nil} {
		for _, seen := range s.sights(x) {
			for _, plan := range []view.Plan{{{Owner: "a", Standby: "b"}}, {{Owner: "b", Standby: "a"}}} {
				v, _ := view.Next(&last, seen, x.reports(settled, complete), plan)
				if v == nil {
					continue
				}
				if s.broken == leaseMembers {
					v.Waived = 0
				}
				if index := s.intern(v); !slices.Contains(indices, index) {
					indices = append(indices, index)
				}
			}
		}
	}
	return indices
}

// sights returns what the writer may see: nothing, one node as it is not or as it is, and a node that joins.
func (s *leaseSearch) sights(x *leaseWorld) (sights []view.Seen) {
	ready := view.Seen{}
	for i := range s.nodes {
		if x.departed>>i&1 == 0 {
			ready.Nodes = append(ready.Nodes, view.Member{Life: x.life(i)})
		}
	}
	ready.Most = s.full
	sights = append(sights, view.Seen{}, ready)
	for i := range s.nodes {
		gone := view.Member{Life: x.life(i), State: view.Gone}
		if x.departed>>i&1 == 1 {
			gone.State = view.Left
			sights = append(sights, view.Seen{Nodes: []view.Member{{Life: x.life(i)}}, Farewells: []view.Life{x.life(i)}}) // registered as ready
		}
		sights = append(sights, view.Seen{Nodes: []view.Member{gone}})
		both := slices.DeleteFunc(slices.Clone(ready.Nodes), func(m view.Member) bool { return m.ID == gone.ID })
		sights = append(sights, view.Seen{Nodes: append(both, gone), Most: s.full})
	}
	return sights
}

// nodesDo has the other nodes adopt views, answer, restart and leave.
func (s *leaseSearch) nodesDo(x *leaseWorld, visit leaseEmit) {
	for i := 1; i < s.nodes; i++ {
		for number := x.adopted[i] + 1; number <= x.written; number++ {
			y := *x
			y.adopted[i] = number
			visit(y, fmt.Sprintf("%c adopts view %d", 'a'+i, number))
		}
		if s.restarts && x.restarts[i] == 0 && x.adopted[i] > 0 {
			y := *x
			y.restarts[i], y.earlier[i], y.adopted[i] = 1, x.adopted[i], 0
			visit(y, fmt.Sprintf("%c restarts", 'a'+i))
		}
		if s.leaves && x.departed == 0 {
			y := *x
			y.departed |= 1 << i
			visit(y, fmt.Sprintf("%c leaves", 'a'+i))
		}
		if x.departed>>i&1 == 1 && s.broken != leaseDeparted {
			continue
		}
		answer := leaseAnswer{uint8(1 + i), x.restarts[i], x.adopted[i], 0}
		if !x.stopped {
			y := *x
			if s.take(&y, answer); y != *x {
				visit(y, fmt.Sprintf("%c confirms", 'a'+i))
			}
		}
		if s.delays && x.answer.by == 0 {
			y := *x
			y.answer = answer
			visit(y, fmt.Sprintf("%c confirms, slowly", 'a'+i))
		}
	}
	if x.answer.by != 0 && !x.stopped {
		y := *x
		y.answer = leaseAnswer{}
		s.take(&y, x.answer)
		visit(y, "the slow answer comes")
	}
}

// take has a receive an answer.
func (s *leaseSearch) take(y *leaseWorld, a leaseAnswer) {
	l := s.lease(y).Look(leaseNow)
	by := view.Life{ID: string(rune('a' + a.by - 1)), Incarnation: 1 + uint64(a.incarnation)}
	number, sent := uint64(a.number), ago(a.age)
	switch s.broken {
	case leaseNewer:
		number = 0
	case leaseSent:
		sent = leaseNow
	case leaseLife:
		for _, w := range l.Witnesses {
			if w.Life.ID == by.ID {
				by = w.Life
			}
		}
	}
	l = l.Answered(by, number, sent)
	y.keep(&l)
}

// ownerDoes has a adopt views, stop, go on, and hear its standby.
func (s *leaseSearch) ownerDoes(x *leaseWorld, visit leaseEmit) {
	if x.stopped {
		y := *x
		y.stopped, y.paused = false, false
		l := s.lease(x)
		if s.broken != leaseClock {
			l = l.Look(leaseNow)
		}
		y.keep(&l)
		visit(y, "a goes on")
		if x.paused && !x.unheard {
			y := *x
			y.unheard = true
			visit(y, "the standby grants")
		}
		return
	}
	for number := x.adopted[0] + 1; number <= x.written; number++ {
		y := *x
		s.adoptOwner(&y, number)
		visit(y, fmt.Sprintf("a adopts view %d", number))
	}
	if x.pauseCount < s.pauses {
		y := *x
		y.stopped, y.pauseCount = true, x.pauseCount+1
		visit(y, "a stops")
	}
	if x.suspended && x.gathered == 0 {
		y := *x
		y.unheard, y.gathered = x.unheard && s.broken == leaseStandby, 1
		visit(y, "a hears its standby")
	}
	if x.gathered != 0 {
		y := *x
		lapses := uint64(1)
		if x.gathered == 2 && s.broken != leaseAgain {
			lapses = 0
		}
		l := s.lease(x).Resume(leaseNow, lapses)
		y.keep(&l)
		y.gathered = 0
		visit(y, "a resumes")
	}
}

func (s *leaseSearch) adoptOwner(y *leaseWorld, number uint8) {
	l := s.lease(y).Look(leaseNow)
	v := s.view(y, number)
	suspended := l.Suspended
	if l = l.Adopt(uint64(number), v.Lives()); s.broken == leaseJoined {
		l.Suspended = suspended
	}
	y.keep(&l)
}

// etcdDoes has etcd renew a's lease, lose it, grant it again, and lose everything.
func (s *leaseSearch) etcdDoes(x *leaseWorld, visit leaseEmit) {
	if x.etcd {
		y := *x
		y.etcd, y.gone = false, true
		visit(y, "a's etcd lease is gone")
	}
	if s.wipes > x.wipeCount {
		y := *x
		y.etcd, y.gone, y.wiped, y.wipeCount = false, true, true, x.wipeCount+1
		visit(y, "etcd is wiped")
	}
	if x.wiped && x.written < leaseViews {
		s.restore(x, visit)
	}
	if x.stopped {
		return
	}
	if x.etcd {
		y := *x
		l := s.lease(x).Look(leaseNow).Renewed(leaseNow)
		y.keep(&l)
		visit(y, "etcd confirms")
		s.read(x, visit)
	}
	if !x.etcd && x.grantCount < s.regrants {
		y := *x
		y.etcd, y.grantCount = true, x.grantCount+1
		l := s.lease(x).Look(leaseNow).Granted(leaseNow)
		late := leaseNow.Add(-leaseTick) // an answer comes to a read that began before
		switch s.broken {
		case leaseRead:
			l.Etcd.Counts = true
		case leaseBegan:
			l.Etcd.Granted = late
		}
		l = l.Read(late, l.Number)
		y.keep(&l)
		visit(y, "etcd grants a lease again")
	}
}

// read has a read the view, adopt it, and count its etcd lease.
func (s *leaseSearch) read(x *leaseWorld, visit leaseEmit) {
	if x.wiped || x.counts {
		return
	}
	y := *x
	s.adoptOwner(&y, max(y.written, y.adopted[0]))
	l := s.lease(&y).Read(leaseNow, uint64(y.written))
	y.keep(&l)
	visit(y, "a reads the view")
}

// restore has an operator write the view that some node has into an etcd that was wiped.
func (s *leaseSearch) restore(x *leaseWorld, visit leaseEmit) {
	for i := range s.nodes {
		if x.adopted[i] == 0 || x.adopted[i] < x.written && s.broken != leaseNewest {
			continue
		}
		v := *s.view(x, x.adopted[i])
		v.Number = uint64(x.written) + 1
		y := *x
		y.wiped = false
		s.publish(&y, s.intern(&v), visit, fmt.Sprintf("the view of %c is restored", 'a'+i))
	}
}

// The settings of the search of leases. SEARCH_STATES visits more states.
var leaseSettings = []struct {
	name string
	leaseSearch
}{
	{"three members", leaseSearch{start: 3, nodes: 3, steps: 3, most: 50_000}},
	{"a fourth joins", leaseSearch{start: 3, nodes: 4, steps: 3, most: 50_000}},
	{"etcd leases granted again", leaseSearch{start: 3, nodes: 3, steps: 3, regrants: 2, most: 50_000}},
	{"slow answers", leaseSearch{start: 3, nodes: 3, steps: 3, delays: true, most: 50_000}},
	{"restarts", leaseSearch{start: 3, nodes: 3, steps: 3, restarts: true, most: 50_000}},
	{"members that leave", leaseSearch{start: 3, nodes: 3, steps: 3, leaves: true, most: 50_000}},
	{"a stops twice", leaseSearch{start: 2, nodes: 2, steps: 5, pauses: 2, most: 50_000}},
	{"two members, etcd leases granted again", leaseSearch{start: 2, nodes: 2, steps: 3, regrants: 2, most: 50_000}},
	{"no room for a node that is back", leaseSearch{start: 2, nodes: 4, steps: 3, full: 2, begin: afterRemoval, most: 50_000}},
	{"etcd is wiped", leaseSearch{start: 3, nodes: 3, steps: 3, wipes: 1, regrants: 1, most: 50_000}},
}

// brief has a search of leases visit fewer states, unless more are asked for.
func (s *leaseSearch) brief(t *testing.T) {
	long := search{most: s.most}
	long.brief(t)
	s.most = long.most
}

// An owner does not decide together with its successor, and not without what its standby has granted while it stood still, in any order of what members,
// etcd and clocks may do.
func TestSearchLeases(t *testing.T) {
	for _, tc := range leaseSettings {
		t.Run(tc.name, func(t *testing.T) {
			s := tc.leaseSearch
			s.brief(t)
			if s.most > 0 && !testform.AllTests() {
				s.most = min(s.most, 15_000)
			}
			states, complete, problem := s.run()
			t.Logf("%d states, complete: %t, %d views", states, complete, len(s.views))
			if problem != "" {
				t.Fatal(problem)
			}
		})
	}
}

// longSearches are for rules without which 100,000 states or more come before the fault.
var longSearches = []leaseRule{leaseMembers, leaseLife, leaseSent, leaseDeparted, leaseNewest}

// Without any one of these rules the search finds a fault.
func TestSearchLeasesFindsDefects(t *testing.T) {
	for _, tc := range []struct {
		broken  leaseRule
		setting string
	}{
		{leaseMembers, "three members"}, {leaseHalf, "three members"}, {leaseLast, "three members"}, {leaseNonMember, "no room for a node that is back"},
		{leaseNewer, "three members"}, {leaseLife, "restarts"}, {leaseRead, "two members, etcd leases granted again"}, {leaseBegan, "two members, etcd leases granted again"},
		{leaseGone, "two members, etcd leases granted again"}, {leaseWait, "three members"}, {leaseSent, "slow answers"}, {leaseClock, "a stops twice"},
		{leaseStandby, "a stops twice"}, {leaseAgain, "a stops twice"}, {leaseJoined, "a stops twice"}, {leaseDeparted, "members that leave"}, {leaseNewest, "etcd is wiped"},
	} {
		t.Run(string(tc.broken), func(t *testing.T) {
			if slices.Contains(longSearches, tc.broken) {
				testform.NotInBrief(t)
			}
			for _, setting := range leaseSettings {
				if setting.name != tc.setting {
					continue
				}
				s := setting.leaseSearch
				s.most = 300_000
				s.brief(t)
				s.broken = tc.broken
				states, _, problem := s.run()
				if problem == "" {
					t.Errorf("%d states, and no fault without the rule that %s", states, tc.broken)
				}
				t.Logf("%d states: %.60s", states, problem)
			}
		})
	}
}
