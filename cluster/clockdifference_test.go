package cluster

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/shard"
)

// A heartbeat tells by how much the clock of a member is ahead, less what its way may account for; a member that answers no more is not
// compared.
func TestClocks(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		a := c.alive["a"]
		time.Sleep(2 * heartbeatEvery)
		synctest.Wait()
		if got, want := a.owners.Clocks(), []ClockDifference{{"b", 0}, {"c", 0}}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		c.crash("c")
		time.Sleep(clockKnown + heartbeatEvery)
		if got, want := a.owners.Clocks(), []ClockDifference{{"b", 0}}; !slices.Equal(got, want) {
			t.Errorf("without c %v, want %v", got, want)
		}
		b := a.owners.knownMembers.of(Life{ID: "b", Incarnation: 1})
		const asked, answered = int64(1000 * time.Second), int64(1000*time.Second + 300*time.Millisecond)
		for clock, want := range map[int64]time.Duration{
			asked: 0, answered: 0, answered - 1: 0, answered + int64(time.Second): time.Second, asked - int64(time.Hour): -time.Hour,
		} {
			if b.compare(clock, asked, answered); !slices.Equal(a.owners.Clocks(), []ClockDifference{{"b", want}}) {
				t.Errorf("a clock at %d is ahead by %v, want %v", clock, a.owners.Clocks(), want)
			}
		}
		b.compare(0, asked, answered)
		if got := a.owners.Clocks(); !slices.Equal(got, []ClockDifference{{"b", b.ahead}}) {
			t.Errorf("an older version changes %v", got)
		}
	})
	for by, want := range map[time.Duration]bool{time.Second: false, -time.Second: false, time.Second + 1: true, -time.Second - 1: true} {
		if got := (ClockDifference{"x", by}).TooFar(); got != want {
			t.Errorf("%v apart is too far: %v", by, got)
		}
	}
}

// A shard decides by the wall clock that it is given.
func TestClockOfTheShard(t *testing.T) {
	ahead := func() time.Time { return time.Now().Add(time.Hour) }
	s, err := shard.New(shard.Config{Partitions: 64, MaxBytes: 16 << 20, Wall: ahead, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Duration(s.Now() - time.Now().UnixNano()); d < 59*time.Minute || d > 61*time.Minute {
		t.Errorf("%v ahead", d)
	}
}

// How far a candidate's clock may be from which members' clocks.
func TestClockOfACandidate(t *testing.T) {
	for _, tc := range []struct {
		members, apart string // from whose clocks the candidate's is too far
		want           string // the node that is named; "" if it is admitted
	}{
		{"a", "", ""},
		{"a", "a", "a"},
		{"a b", "b", ""},
		{"a b", "a b", "a b"},
		{"a b c", "a", ""},
		{"a b c", "b c", "b c"},
		{"a b c d", "c d", ""},
		{"a b c d", "b c d", "b c d"},
	} {
		candidate := Node{ID: "x", Address: "x:1", Incarnation: 2, State: Ready}
		adm := newAdmission("none", nil, nil, func(string) bool { return false }, nil, slog.New(slog.DiscardHandler))
		adm.Consider(parseView(tc.members), append(parseNodes(tc.members), candidate))
		for _, id := range strings.Fields(tc.members) {
			ahead := -MaxClockDifference
			if strings.Contains(tc.apart, id) {
				ahead--
			}
			adm.hear(id, []*peerv1.Finding{{Id: "x", Incarnation: 2, Reached: true, Ahead: int64(ahead)}})
		}
		var named []string
		for _, l := range adm.lacks(adm.candidates[Life{ID: "x", Incarnation: 2}], time.Now()) {
			named = append(named, l.By)
		}
		if got := strings.Join(named, " "); got != tc.want || adm.Admits(candidate) != (tc.want == "") {
			t.Errorf("apart from %q of %q: %q are named, want %q", tc.apart, tc.members, got, tc.want)
		}
	}
}

// Of nodes that start at the same instant none becomes a member whose clock is too far from the founder's, or from most members'. The members see to
// that by themselves: here no node looks at its own clock.
func TestNodesThatStartAtOnceWithDifferentClocks(t *testing.T) {
	for _, tc := range []struct {
		ahead map[string]time.Duration
		want  string // the members
	}{
		{map[string]time.Duration{"c": time.Hour}, "a b d"},
		{map[string]time.Duration{"c": -2 * time.Second, "d": time.Second}, "a b d"},
		{map[string]time.Duration{"a": time.Hour}, "a"},                                                  // which founds the cluster
		{map[string]time.Duration{"a": 600 * time.Millisecond, "c": -600 * time.Millisecond}, "a b c d"}, // c once b and d are members, to whose clocks it is close
	} {
		t.Run(fmt.Sprint(tc.ahead), func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				c.ahead = tc.ahead
				c.start("a", "b", "c", "d")
				var ever []string
				for range 1000 {
					time.Sleep(10 * time.Millisecond)
					for _, m := range c.alive["a"].router.View().Present() {
						if !slices.Contains(ever, m.ID) {
							ever = append(ever, m.ID)
						}
					}
				}
				slices.Sort(ever)
				if got := strings.Join(ever, " "); got != tc.want {
					t.Errorf("members are or were %s, want %s", got, tc.want)
				}
				for id, n := range c.alive {
					for _, u := range n.owners.Unreached() {
						if text := u.Describe(); strings.Contains(tc.want, u.Node.ID) || !u.IsClockTooFar() || !strings.Contains(text, "from node a's, more than 1s") {
							t.Errorf("%s says of %s: %s", id, u.Node.ID, text)
						}
					}
					if n := len(n.owners.Unreached()) + len(ever); n != 4 {
						t.Errorf("%s names %d nodes that are no members", id, n-len(ever))
					}
				}
			})
		})
	}
}
