package replica

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
)

// The settings of the search. Without faults it completes; the others have tens of millions of states, of which the first are visited.
// SEARCH_STATES=20000000 visits more of them: up to 5.8 GB and 90 s for each setting.
var settings = []struct {
	name string
	search
}{
	{"views that move, no faults", search{limit: 2, grants: 3, moves: 2}},
	{"leases that lapse", search{limit: 2, grants: 2, moves: 2, lapses: 2, most: 200_000}},
	{"a crash", search{limit: 2, grants: 3, moves: 1, crashes: 1, most: 200_000}},
	{"a farewell", search{limit: 2, grants: 3, moves: 1, farewells: 1, most: 200_000}},
	{"a farewell and a crash", search{limit: 2, grants: 3, moves: 1, farewells: 1, crashes: 1, most: 200_000}},
	{"a farewell, a suspicion and a lapse", search{limit: 2, grants: 3, moves: 1, farewells: 1, lapses: 1, suspects: true, most: 200_000}},
	{"two crashes", search{limit: 2, grants: 3, moves: 1, crashes: 2, most: 200_000}},
	{"two suspicions and a lapse", search{limit: 2, grants: 3, moves: 2, lapses: 1, suspects: true, most: 200_000}},
	{"a crash and two suspicions", search{limit: 2, grants: 3, moves: 2, crashes: 1, suspects: true, most: 200_000}},
	{"a crash, a suspicion and a lapse", search{limit: 2, grants: 3, moves: 1, crashes: 1, lapses: 1, suspects: true, most: 200_000}},
	{"two crashes and two that stand in", search{limit: 2, grants: 3, moves: 1, crashes: 2, standIns: 2, most: 200_000}},
	{"a crash, two suspicions and one that stands in", search{limit: 2, grants: 3, moves: 2, crashes: 1, standIns: 1, suspects: true, most: 200_000}},
	{"two crashes and two suspicions", search{limit: 2, grants: 3, moves: 2, crashes: 2, suspects: true, most: 200_000}},
}

// brief has a search visit fewer states, unless all tests are to run.
func (s *search) brief(t *testing.T) {
	if testform.RaceEnabled {
		t.Skip("nothing races in a search, which is long enough without the race detector")
	}
	if s.most == 0 && !testform.AllTests() {
		s.most = 200_000
	}
	if n, err := strconv.Atoi(os.Getenv("SEARCH_STATES")); err == nil && s.most > 0 {
		s.most = n
	}
}

// In any order of what may happen, at most one node decides, no grant is forgotten except with a node that had it alone, none is counted twice, and
// without suspicions and lapses the limit holds.
func TestSearchReplicas(t *testing.T) {
	for _, tc := range settings {
		t.Run(tc.name, func(t *testing.T) {
			s := tc.search
			s.brief(t)
			if s.most > 0 && !testform.AllTests() {
				s.most = min(s.most, 40_000)
			}
			began := time.Now()
			states, complete, problem := s.run()
			t.Logf("%d states, complete: %t, %s", states, complete, time.Since(began).Round(time.Millisecond))
			if problem != "" {
				t.Fatal(problem)
			}
			if !complete && s.most == 0 {
				t.Error("it ends before all is visited")
			}
		})
	}
}

// Without any one of these rules the search finds a fault.
func TestSearchReplicasFindsDefects(t *testing.T) {
	suspicions := search{limit: 2, grants: 2, moves: 2, lapses: 1, suspects: true, most: 300_000}
	crash := search{limit: 2, grants: 2, moves: 1, crashes: 1, most: 100_000}
	farewell := search{limit: 2, grants: 2, moves: 1, farewells: 1, most: 100_000}
	for _, tc := range []struct {
		broken rule
		search
	}{
		{ruleLater, suspicions}, {ruleAllBefore, suspicions}, {ruleReinstate, suspicions}, {ruleStops, suspicions}, {ruleWaits, suspicions},
		{ruleKeepsDeltas, suspicions}, {ruleOnce, suspicions}, {ruleSettled, suspicions}, {ruleOwnTerm, suspicions},
		{ruleReportKeeps, crash}, {ruleOwnerFirst, crash}, {ruleComplete, crash}, {ruleFarewell, farewell},
	} {
		t.Run(string(tc.broken), func(t *testing.T) {
			s := tc.search
			s.brief(t)
			s.broken = tc.broken
			states, _, problem := s.run()
			if problem == "" {
				t.Errorf("%d states, and no fault without the rule that %s", states, tc.broken)
			}
			t.Logf("%d states: %.60s", states, problem)
		})
	}
}
