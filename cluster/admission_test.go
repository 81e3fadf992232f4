package cluster

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// How many members must have reached a candidate, and which count.
func TestAdmissionRule(t *testing.T) {
	for _, tc := range []struct {
		members string // of the view; "-" at the end: without a key in the registry
		reached string // by which of them the candidate x is reached
		refused string // which of them have tried in vain
		want    string // "" if x is admitted, else the members that are named
	}{
		{"", "", "", ""},
		{"a", "a", "", ""},
		{"a", "", "a", "a"},
		{"a", "", "", "a"}, // it has not tried yet
		{"a b", "a b", "", ""},
		{"a b", "a", "b", "b"},
		{"a b", "b", "", "a"},
		{"a b c", "a b", "c", ""},
		{"a b c", "b c", "a", ""}, // the writer is in the minority
		{"a b c", "a", "b c", "b c"},
		{"a b c", "", "", "a b c"},
		{"a b c-", "a b", "", ""},
		{"a b c-", "a", "b", "b"}, // two live: both must
		{"a b- c-", "a", "", ""},
		{"a b c d", "a b", "c d", "c d"},
		{"a b c d", "a b d", "c", ""},
		{"a b c d e", "a b", "c d e", "c d e"},
		{"a b c d e", "a b e", "c d", ""},
		{"a b/leaving", "a", "b", ""},
		{"a b c x", "b", "a c", "a c"}, // a member that has started again elsewhere does not count for itself
		{"a b c x", "b c", "a", ""},
		{"x", "", "", ""},
	} {
		view := parseView(strings.ReplaceAll(tc.members, "-", ""))
		if view == nil {
			view = &View{Number: 1}
		}
		candidate := Node{ID: "x", Address: "elsewhere:1", Incarnation: 2, State: Ready}
		nodes := []Node{candidate}
		for _, n := range parseNodes(tc.members) {
			if !strings.HasSuffix(n.ID, "-") && n.ID != "x" {
				nodes = append(nodes, n)
			}
		}
		adm := newAdmission("a", nil, nil, func(string) bool { return false }, nil, slog.New(slog.DiscardHandler))
		adm.Consider(view, nodes)
		say := func(ids string, reached bool) {
			for _, id := range strings.Fields(ids) {
				if c := adm.candidates[Life{ID: "x", Incarnation: 2}]; id == "a" {
					c.tried, c.foundAt, c.found = true, time.Now(), finding{reached: reached, reason: "refused"}
				} else {
					adm.hear(id, []*peerv1.Finding{{Id: "x", Incarnation: 2, Reached: reached, Reason: "refused"}})
				}
			}
		}
		say(tc.reached, true)
		say(tc.refused, false)
		var named []string
		for _, l := range adm.lacks(adm.candidates[Life{ID: "x", Incarnation: 2}], time.Now()) {
			named = append(named, l.By)
		}
		if got := strings.Join(named, " "); got != tc.want {
			t.Errorf("members %q, reached by %q, refused by %q: %q lack, want %q", tc.members, tc.reached, tc.refused, got, tc.want)
		}
		if got := adm.Admits(candidate); got != (tc.want == "") {
			t.Errorf("members %q, reached by %q, refused by %q: admitted is %v", tc.members, tc.reached, tc.refused, got)
		}
	}
}

// What was reported of another incarnation, by a node that is no member, or long ago does not count.
func TestAdmissionIgnoresOtherReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		candidate := Node{ID: "x", Address: "x:1", Incarnation: 2, State: Ready}
		adm := newAdmission("a", nil, nil, func(string) bool { return false }, nil, slog.New(slog.DiscardHandler))
		adm.Consider(parseView("b"), append(parseNodes("b"), candidate))
		adm.hear("b", []*peerv1.Finding{{Id: "x", Incarnation: 1, Reached: true}})
		adm.hear("stranger", []*peerv1.Finding{{Id: "x", Incarnation: 2, Reached: true}})
		if len(adm.reports) != 1 || adm.Admits(candidate) {
			t.Error("admitted by reports of another incarnation, or of no member")
		}
		adm.hear("b", []*peerv1.Finding{{Id: "x", Incarnation: 2, Reached: true}})
		if !adm.Admits(candidate) {
			t.Error("not admitted although the only member reaches it")
		}
		time.Sleep(reportKnown)
		if adm.Admits(candidate) {
			t.Error("admitted by a report of long ago")
		}
	})
}

// A candidate that members have reached is not named at once when one says nothing of it any more: that member may have adopted the view already of which
// the candidate is a member.
func TestReachedCandidatesAreNotNamedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		adm := newAdmission("a", nil, nil, func(string) bool { return false }, nil, slog.New(slog.NewTextHandler(&log, nil)))
		adm.Consider(parseView("b"), append(parseNodes("b"), Node{ID: "x", Address: "x:1", Incarnation: 2, State: Ready}))
		for range 2 * lackNamed / knockEvery { // it waits for a planned change
			adm.hear("b", []*peerv1.Finding{{Id: "x", Incarnation: 2, Reached: true}})
			adm.tell()
			time.Sleep(knockEvery)
		}
		adm.hear("b", nil)
		if adm.tell(); log.Len() > 0 || len(adm.Unreached()) > 0 {
			t.Errorf("it is named at once: %v, %s", adm.Unreached(), &log)
		}
		time.Sleep(lackNamed)
		if adm.tell(); log.Len() == 0 || len(adm.Unreached()) != 1 {
			t.Errorf("it is not named after %v: %v, %s", lackNamed, adm.Unreached(), &log)
		}
	})
}

// Only ready nodes are candidates, 64 at a time, and what was found of one holds for its address only.
func TestCandidates(t *testing.T) {
	adm := newAdmission("a", nil, nil, func(string) bool { return false }, nil, slog.New(slog.DiscardHandler))
	nodes := parseNodes("a")
	for _, state := range []State{Joining, Leaving, Left} {
		nodes = append(nodes, Node{ID: string(state), Address: "x:1", Incarnation: 1, State: state})
	}
	if adm.Consider(parseView("a"), nodes); len(adm.candidates) > 0 {
		t.Errorf("nodes that are not ready are candidates: %v", adm.candidates)
	}
	moving := Node{ID: "x", Address: "x:1", Incarnation: 1, State: Ready}
	adm.Consider(parseView("a"), append(parseNodes("a"), moving))
	c := adm.candidates[Life{ID: "x", Incarnation: 1}]
	c.tried, c.foundAt, c.found = true, time.Now(), finding{reached: true}
	if !adm.Admits(moving) {
		t.Error("not admitted although it is reached")
	}
	moving.Address = "x:2"
	if adm.Consider(parseView("a"), append(parseNodes("a"), moving)); adm.Admits(moving) {
		t.Error("admitted at an address at which it was not reached")
	}
	for i := range 2 * maxCandidate {
		nodes = append(nodes, Node{ID: fmt.Sprint("n", i), Address: "n:1", Incarnation: 1, State: Ready})
	}
	if adm.Consider(parseView("a"), nodes); len(adm.candidates) != 64 {
		t.Errorf("%d candidates at a time", len(adm.candidates))
	}
}

func (c *ownershipCluster) isMember(id string) bool {
	return c.alive["a"].router.View().IsMember(id)
}

// unreach has no node of those ids connect to an address any more.
func (c *ownershipCluster) unreach(cut bool, address string, from ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range from {
		way := [2]string{id, address}
		c.cuts[way] = cut
		for _, conn := range c.conns[way] {
			_ = conn.Close()
		}
		delete(c.conns, way)
	}
}

// mute has nothing come back from an address to nodes of those ids any more, as a firewall does that drops packets.
func (c *ownershipCluster) mute(is bool, address string, from ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range from {
		c.lossy[[2]string{id, address}] = is
	}
}

func TestJoinerThatIsNotReached(t *testing.T) {
	for _, tc := range []struct {
		members []string
		cut     []string // which members do not reach the joiner
		admits  bool
	}{
		{[]string{"a"}, []string{"a"}, false},
		{[]string{"a", "b"}, []string{"b"}, false},
		{[]string{"a", "b", "c"}, []string{"a"}, true},
		{[]string{"a", "b", "c"}, []string{"b", "c"}, false},
		{[]string{"a", "b", "c", "d", "e"}, []string{"b", "e"}, true},
		{[]string{"a", "b", "c", "d", "e"}, []string{"b", "d", "e"}, false},
	} {
		t.Run(fmt.Sprintf("%d of %d", len(tc.cut), len(tc.members)), func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				c.start(tc.members...)
				c.settled()
				c.unreach(true, "x:1", tc.cut...)
				c.start("x")
				time.Sleep(10 * time.Second)
				if got := c.isMember("x"); got != tc.admits {
					t.Fatalf("it is a member: %v, want %v", got, tc.admits)
				}
				if tc.admits {
					return
				}
				if n := c.alive["x"].owners.HandoverStatus().Active; n > 0 {
					t.Errorf("it decides for %d partitions", n)
				}
				for id, n := range c.alive {
					unreached := n.owners.Unreached()
					if len(unreached) != 1 || len(unreached[0].By) != len(tc.cut) {
						t.Fatalf("%s says %+v", id, unreached)
					}
					for i, by := range tc.cut {
						if want := "node " + by + " does not reach it at x:1"; unreached[0].By[i].By != by || !strings.Contains(unreached[0].Describe(), want) {
							t.Errorf("%s says %q, want %q", id, unreached[0].Describe(), want)
						}
					}
					if n := strings.Count(c.log.String(), "is not reached by the members"); n != len(c.alive) {
						t.Errorf("it is logged %d times by %d nodes", n, len(c.alive))
					}
				}
				c.unreach(false, "x:1", tc.cut...)
				healed := time.Now()
				c.await("it is a member once it is reached", func() bool { return c.isMember("x") })
				if took := time.Since(healed); took > 3*time.Second {
					t.Errorf("it is a member %v after it is reached", took)
				}
				c.settled()
				for id, n := range c.alive {
					if unreached := n.owners.Unreached(); len(unreached) > 0 {
						t.Errorf("%s still says %+v", id, unreached)
					}
				}
			})
		})
	}
}

// Admission costs no time where all reach the joiner.
func TestAdmissionTakesNoLongerThanAView(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		began := time.Now()
		c.start("d")
		c.await("it is a member", func() bool { return c.isMember("d") })
		if took := time.Since(began); took > plannedEvery+100*time.Millisecond {
			t.Errorf("it is a member after %v", took)
		}
	})
}

// A member that starts again elsewhere is admitted like a joiner.
func TestRestartAtAnAddressThatIsNotReached(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		c.crash("c")
		c.starts["c"]++
		n := c.launch("c", c.starts["c"])
		n.node.Address = "nowhere:1"
		c.follow(n)
		c.registry.Announce(n.node)
		time.Sleep(5 * time.Second)
		if v := c.alive["a"].router.View(); v.Members[2].Incarnation != 1 {
			t.Fatalf("it is a member at an address where it is not reached: %+v", v.Members[2])
		}
		n.node.Address = "c:1"
		c.registry.Announce(n.node)
		c.settled()
	})
}
