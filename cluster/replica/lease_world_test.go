package replica

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/cluster/view"
)

// The world of the search of decision leases: node a decides for one partition until a view that gives it to another one is written. Views are
// written by view.Next, adopted in any order and skipped. Time goes in steps of half a LeaseTime, which are longer than SuspendAfter.
const (
	leaseNodes = 4
	leaseViews = 5
	leaseTick  = LeaseTime / 2
	expired    = 2 // steps after which what a witness has said is over
)

// leaseWorld is a state of everything. Ages are in steps, at most expired.
type leaseWorld struct {
	views   [leaseViews]uint16 // indices of leaseSearch.views, from view 1 on
	written uint8
	lost    uint8 // the view that gives the partition to another node, 0 for none yet
	time    uint8

	adopted  [leaseNodes]uint8 // by the life that runs
	earlier  [leaseNodes]uint8 // by the life before, which has ended
	restarts [leaseNodes]uint8
	departed uint8 // nodes, as bits, that have said that they leave

	heard              [leaseNodes]uint8 // ages, of the members that a's newest view names
	before, renewed    uint8
	etcd, counts       bool // a has an etcd lease, and it is a witness
	granted            bool // since a has learned of it
	suspended, stopped bool
	paused             bool // a is stopped, and was for a step
	gathered           uint8
	answer             leaseAnswer

	gone, goneSince                   bool  // the etcd lease was gone at some time; after the view that replaces a
	over                              bool  // a has no witness any more
	held                              uint8 // steps since when a has no witnesses
	begun                             bool  // a successor has taken a for ended
	unheard                           bool  // the standby has granted, and a has not heard it
	wiped                             bool
	wipeCount, pauseCount, grantCount uint8
}

// leaseAnswer is an answer to a heartbeat that is on its way to a.
type leaseAnswer struct {
	by, incarnation, number, age uint8 // by: 1 + the node; 0 for none
}

func (w *leaseWorld) life(i int) view.Life {
	return view.Life{ID: string(rune('a' + i)), Incarnation: 1 + uint64(w.restarts[i])}
}

var leaseNow = time.Unix(1000, 0)

func ago(age uint8) time.Time {
	if age >= expired {
		return time.Time{}
	}
	return leaseNow.Add(-time.Duration(age) * leaseTick)
}

func ageOf(t time.Time) uint8 {
	if t.IsZero() || leaseNow.Sub(t) >= expired*leaseTick {
		return expired
	}
	return uint8(leaseNow.Sub(t) / leaseTick)
}

// lease returns a's decision lease.
func (s *leaseSearch) lease(w *leaseWorld) Lease {
	l := Lease{
		Self: w.life(0), Number: uint64(w.adopted[0]), Before: ago(w.before), Looked: leaseNow, Suspended: w.suspended, Lapses: 1,
		Etcd: EtcdLease{Counts: w.counts, Renewed: ago(w.renewed)},
	}
	if w.granted {
		l.Etcd.Granted = leaseNow.Add(-10 * leaseTick)
	}
	if w.paused {
		l.Looked = leaseNow.Add(-leaseTick)
	}
	l.Role = WasMember
	if v := s.view(w, w.adopted[0]); v.IsMember(l.Self) || s.broken == leaseNonMember {
		l.Role = IsMember
		for _, m := range v.Lives() {
			if m != l.Self {
				l.Witnesses = append(l.Witnesses, Witness{m, ago(w.heard[m.ID[0]-'a'])})
			}
		}
	}
	return l
}

// keep stores a's decision lease.
func (w *leaseWorld) keep(l *Lease) {
	w.adopted[0] = uint8(l.Number)
	w.before, w.suspended, w.counts, w.renewed, w.granted = ageOf(l.Before), l.Suspended, l.Etcd.Counts, ageOf(l.Etcd.Renewed), !l.Etcd.Granted.IsZero()
	w.heard = [leaseNodes]uint8{expired, expired, expired, expired}
	for _, o := range l.Witnesses {
		w.heard[o.Life.ID[0]-'a'] = ageOf(o.Sent)
	}
	if l.Lapses > 1 && w.gathered == 1 {
		w.gathered = 2
	}
}

// reports are what is adopted: that a node knows all of it is the worst that may happen. settled is what all have settled in, and complete of what all have a
// complete copy.
func (w *leaseWorld) reports(settled, complete view.Set) (r view.Reports) {
	for i := range leaseNodes {
		if w.restarts[i] > 0 {
			r = append(r, view.Report{Life: view.Life{ID: w.life(i).ID, Incarnation: uint64(w.restarts[i])}, Adopted: uint64(w.earlier[i])})
		}
		r = append(r, view.Report{Life: w.life(i), Adopted: uint64(w.adopted[i]), Settled: settled, Complete: complete})
	}
	return r
}

func (w *leaseWorld) format(s *leaseSearch) string {
	v := s.view(w, w.written)
	p := v.Partitions[0]
	return fmt.Sprintf("\n    view %d (changed %d): owner %v standby %v members %v, lost %d; adopted %v earlier %v restarts %v; heard %v before %d renewed %d etcd %t counts %t; "+
		"suspended %t stopped %t paused %t gathered %d; gone %t since %t held %d begun %t unheard %t; answer %+v",
		w.written, v.Changed, p.Owner, p.Standby, v.Lives(), w.lost, w.adopted, w.earlier, w.restarts, w.heard, w.before, w.renewed, w.etcd, w.counts,
		w.suspended, w.stopped, w.paused, w.gathered, w.gone, w.goneSince, w.held, w.begun, w.unheard, w.answer)
}
