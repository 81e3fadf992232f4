package cluster

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/internal/testform"
)

// reregister has nodes that are evicted and live register again, as package etcd does.
func (c *ownershipCluster) reregister() {
	c.registry.again = func(n Node) {
		time.AfterFunc(500*time.Millisecond, func() { c.registry.Announce(n) })
	}
}

// A member that a majority of the members does not reach is dropped while it lives, and comes back once it is reached.
func TestUnreachableMember(t *testing.T) {
	for _, tc := range []struct {
		members, cut string // which members do not reach the last one
		drops        bool
	}{
		{"a b", "a", false},
		{"a b c", "a", false},
		{"a b c", "a b", true},
		{"a b c d e", "a d", false},
		{"a b c d e", "b c d", true},
	} {
		ids := strings.Fields(tc.members)
		if len(ids) > 3 && (testform.RaceEnabled || !testform.AllTests()) {
			continue
		}
		last := ids[len(ids)-1]
		t.Run(fmt.Sprintf("%s of %s are refused", tc.cut, tc.members), func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				c.notReached(ids, tc.drops, 10, func(cut bool) { c.unreach(cut, last+":1", strings.Fields(tc.cut)...) })
			})
		})
		t.Run(fmt.Sprintf("%s of %s hear nothing", tc.cut, tc.members), func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				c.notReached(ids, tc.drops, 10, func(cut bool) { c.mute(cut, last+":1", strings.Fields(tc.cut)...) })
			})
		})
	}
}

// notReached starts nodes and cuts the last one off. It checks whether that is dropped, that it comes back, and that
// as many tokens of each key as granted says are granted.
func (c *ownershipCluster) notReached(ids []string, drops bool, granted int, cut func(bool)) {
	const keys = 40
	t, last := c.t, ids[len(ids)-1]
	c.reregister()
	c.start(ids...)
	c.settled()
	l := c.begin(keys, 8)
	time.Sleep(2 * time.Second) // all is granted and replicated, and none of it is granted again
	cut(true)
	began := time.Now()
	for time.Since(began) < 20*time.Second && c.isMember(last) {
		time.Sleep(10 * time.Millisecond)
	}
	if drops == c.isMember(last) {
		t.Fatalf("dropped: %v, want %v", !drops, drops)
	}
	if took := time.Since(began); drops && (took < accuseAfter || took > accuseAfter+3*time.Second) {
		t.Errorf("it is dropped after %v", took)
	}
	time.Sleep(5 * time.Second)
	if drops && c.isMember(last) {
		t.Error("it is a member again before it is reached")
	}
	cut(false)
	c.settled()
	if !c.isMember(last) {
		t.Error("it is no member although it is reached again")
	}
	time.Sleep(accuseAfter + time.Second)
	if !c.isMember(last) {
		t.Error("it is dropped again by what was found before")
	}
	l.end()
	if l.asked < 20*keys || l.undecided > 0 {
		t.Errorf("%d asked, %d not decided", l.asked, l.undecided)
	}
	c.exact(l.allowed, keys, granted)
}

// A process that is stopped is dropped once a majority has heard nothing of it for accuseAfter, although its lease lives. One that goes on before
// that stays.
func TestStoppedMember(t *testing.T) {
	for stopped, drops := range map[time.Duration]bool{
		time.Second: false, 3 * time.Second: false, accuseAfter: false, accuseAfter + 3*time.Second: true, 20 * time.Second: true,
	} {
		t.Run(stopped.String(), func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				const keys = 40
				var evicted atomic.Pointer[Node]
				c.registry.again = func(n Node) { evicted.Store(&n) } // it registers again when it goes on
				c.start("a", "b", "c")
				c.settled()
				settled := c.alive["a"].router.View().Number
				l := c.begin(keys, 8)
				c.ask(l, "c")
				time.Sleep(2 * time.Second)
				goOn, began := c.alive["c"].halt(), time.Now()
				for time.Since(began) < stopped && c.isMember("c") {
					time.Sleep(10 * time.Millisecond)
				}
				if took := time.Since(began); drops && (took < accuseAfter || took > accuseAfter+3*time.Second) {
					t.Errorf("it is dropped after %v", took)
				}
				time.Sleep(stopped - time.Since(began))
				if drops == c.isMember("c") {
					t.Errorf("dropped: %v, want %v", !drops, drops)
				}
				goOn()
				if n := evicted.Load(); n != nil {
					c.registry.Announce(*n)
				}
				c.settled()
				time.Sleep(accuseAfter + time.Second)
				if v := c.alive["a"].router.View(); !v.IsMember("c") || !drops && v.Number > settled {
					t.Errorf("view %d has c: %v", v.Number, v.IsMember("c"))
				}
				l.end()
				if l.asked < 20*keys || l.undecided > 0 {
					t.Errorf("%d asked, %d not decided", l.asked, l.undecided)
				}
				c.exact(l.allowed, keys, 10)
			})
		})
	}
}

// Members that have no leases, as a majority that is cut off from etcd, accuse no member.
func TestAccusersWithoutLeases(t *testing.T) {
	for name, cut := range map[string]func(c *ownershipCluster){
		"refused": func(c *ownershipCluster) { c.unreach(true, "c:1", "a", "b") },
		"silent":  func(c *ownershipCluster) { c.mute(true, "c:1", "a", "b") },
	} {
		t.Run(name, func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				c.start("a", "b", "c")
				c.settled()
				cut(c)
				for _, id := range []string{"a", "b"} {
					n := c.alive[id]
					n.mu.Lock()
					n.leased = false
					n.mu.Unlock()
				}
				time.Sleep(14 * time.Second)
				if !c.isMember("c") {
					t.Error("it was dropped")
				}
			})
		})
	}
}

// What a try to reach a member says about that member.
func TestOutcome(t *testing.T) {
	for _, tc := range []struct {
		err  error
		took time.Duration
		want outcome
	}{
		{syscall.ECONNREFUSED, 0, refused},
		{syscall.ECONNREFUSED, time.Minute, refused},
		{strangerError("another node"), 0, refused},
		{context.DeadlineExceeded, connectTimeout, silent},
		{os.ErrDeadlineExceeded, connectTimeout, silent},
		{os.ErrDeadlineExceeded, connectTimeout + replica.SuspendAfter + 1, unclear}, // this node did not run
		{syscall.EHOSTUNREACH, 0, silent},
		{x509.UnknownAuthorityError{}, 0, silent}, // a node of another CA
		{io.EOF, 0, silent},
		{syscall.EMFILE, 0, unclear},
		{syscall.EADDRNOTAVAIL, 0, unclear},
		{context.Canceled, 0, unclear},
	} {
		if got := outcomeOf(fmt.Errorf("dialing: %w", tc.err), tc.took); got != tc.want {
			t.Errorf("%v after %v: %d, want %d", tc.err, tc.took, got, tc.want)
		}
	}
	if got := outcomeOf(nil, 0); got != unclear {
		t.Errorf("reached: %d", got)
	}
}

// A member whose connections fail, and that answers heartbeats, is slow and not silent.
func TestSlowMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		adm := newAdmission("a", newTestGreeter("a", 1), dial, func(string) bool { return false }, time.Now, nil)
		adm.Consider(parseView("a b c"), parseNodes("a b c"))
		look := func(during time.Duration, answers ...string) (accused []Life) {
			for end := time.Now().Add(during); time.Now().Before(end); {
				for _, s := range adm.dueSuspects() {
					go adm.suspect(t.Context(), s)
				}
				time.Sleep(knockEvery)
				for _, id := range answers {
					adm.answered(Life{ID: id, Incarnation: 1})
				}
			}
			adm.mu.Lock()
			defer adm.mu.Unlock()
			return adm.accusesLocked(time.Now())
		}
		if got := look(2*accuseAfter, "b"); !slices.Equal(got, []Life{{ID: "c", Incarnation: 1}}) {
			t.Errorf("accuses %v, want c only", got)
		}
		time.Sleep(connectTimeout)
	})
}

// A node that was stopped accuses only after it has run for accuseAfter.
func TestAccuserWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		renewed := time.Now
		adm := newAdmission("a", nil, nil, func(string) bool { return false }, renewed, nil)
		adm.Consider(parseView("a b c"), parseNodes("a b c"))
		refused := time.Now()
		find := func() {
			for _, s := range adm.dueSuspects() {
				s.trying, s.since, s.foundAt = false, refused, time.Now()
			}
		}
		run := func(during time.Duration) (accuses bool) {
			for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(knockEvery) {
				find()
			}
			return len(adm.accusesLocked(time.Now())) > 0
		}
		if run(accuseAfter - knockEvery) {
			t.Error("it accuses before its time")
		}
		if !run(2 * knockEvery) {
			t.Error("it does not accuse")
		}
		time.Sleep(time.Minute)
		if len(adm.accusesLocked(time.Now())) > 0 || run(accuseAfter-knockEvery) {
			t.Error("it accuses although it was stopped just now")
		}
		if !run(2 * knockEvery) {
			t.Error("it does not accuse again")
		}
	})
}
