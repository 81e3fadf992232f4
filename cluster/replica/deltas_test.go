package replica

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/view"
)

// Deltas of an earlier life are in a copy that has those of a later one. A life that no registry has counted is between those that were counted before and after it.
func TestDeltasOfLives(t *testing.T) {
	const all = math.MaxUint64 - 1
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	uncounted, later := view.UncountedIncarnation(2, start, math.MaxUint64), view.UncountedIncarnation(2, start.Add(time.Second), 0)
	life := func(incarnation uint64) view.Life { return view.Life{ID: "a", Incarnation: incarnation} }
	for _, tc := range []struct {
		noted, of uint64
		want      uint64
	}{
		{2, 2, 7},
		{2, 3, 0},
		{3, 2, all},
		{uncounted, uncounted, 7},
		{uncounted, later, 0},
		{later, uncounted, all},
		{2, uncounted, 0},
		{uncounted, 2, all},
		{uncounted, 3, 0},
		{3, uncounted, all},
	} {
		if got := (Acknowledged{}).With(life(tc.noted), 7).Of(life(tc.of)); got != tc.want {
			t.Errorf("the deltas of life %d, where 7 of life %d are in the copy: %d are, want %d", tc.of, tc.noted, got, tc.want)
		}
	}
}

// A copy is dropped that is of no use: not that of a node that stands in, or has a role or deltas, or may get a role by its report.
func TestMayDrop(t *testing.T) {
	self, other := view.Life{ID: "a", Incarnation: 1}, view.Life{ID: "b", Incarnation: 1}
	unused := func() Replica {
		return Replica{Self: self, State: Following, Claim: Claim{Number: 5, Partition: view.Partition{Owner: view.Life{ID: "c"}, Standby: other}}, Own: Own{Deltas: Deltas{First: 1, Next: 1}}}
	}
	for name, tc := range map[string]struct {
		change func(r *Replica)
		want   bool
	}{
		"unused":            {func(*Replica) {}, true},
		"it stands in":      {func(r *Replica) { r.StandsIn = true }, false},
		"it is the standby": {func(r *Replica) { r.Claim.Standby = self }, false},
		"no standby":        {func(r *Replica) { r.Claim.Standby = view.Life{} }, false},
		"a predecessor":     {func(r *Replica) { r.Claim.Predecessors = []view.Life{self} }, false},
		"it has deltas":     {func(r *Replica) { r.Deltas.Next = 2 }, false},
		"it has reported":   {func(r *Replica) { r.Complete = 5 }, false},
		"it did so before":  {func(r *Replica) { r.Complete = 4 }, true},
		"it decides":        {func(r *Replica) { r.State = Deciding }, false},
	} {
		r := unused()
		tc.change(&r)
		if got := r.MayDrop(); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A standby adds what a former one has granted, once, without a later version. When it begins to decide, that is part of its copy. What the owner feeds
// it before is below it, unless it is in that. No other node takes shared deltas.
func TestSharedDeltas(t *testing.T) {
	owner, standby, former := view.Life{ID: "a", Incarnation: 1}, view.Life{ID: "b", Incarnation: 1}, view.Life{ID: "c", Incarnation: 1}
	claim := Claim{Number: 4, Partition: view.Partition{Owner: owner, Term: 2, Standby: standby}}
	r := Replica{Self: standby, Own: Own{standby, Deltas{1, 1}}, State: Following, Claim: claim, Copy: Copy{Version: Version{2, 7}}}
	posted := func(first, next uint64) Event { return Event{Kind: Posted, From: former, Deltas: Deltas{first, next}} }

	shared, actions := r.Step(posted(1, 3), true)
	if shared.Version != r.Version || shared.Shared.Of(former) != 2 || len(actions) != 1 || actions[0].Kind != AddDeltas || actions[0].Deltas != (Deltas{1, 3}) {
		t.Fatalf("%+v, %+v", shared, actions)
	}
	if again, actions := shared.Step(posted(1, 3), true); len(actions) > 0 || again.Shared.Of(former) != 2 {
		t.Errorf("the same deltas once more: %+v, %+v", again, actions)
	}
	if _, actions := shared.Step(posted(2, 4), true); len(actions) != 1 || actions[0].Deltas != (Deltas{3, 4}) {
		t.Errorf("one more delta: %+v", actions)
	}

	next := Claim{Number: 5, Partition: view.Partition{Owner: standby, Term: 5, Predecessors: []view.Life{owner}}}
	promoted, _ := shared.Step(Event{Kind: Adopt, Claim: next}, true)
	promoted, _ = promoted.Step(Event{Kind: Ended, From: owner}, true)
	if promoted.State != Deciding || promoted.Acknowledged.Of(former) != 2 || promoted.Version != (Version{5, 9}) || promoted.Shared != nil {
		t.Errorf("the owner's successor: %+v", promoted)
	}
	if _, actions := promoted.Step(posted(1, 3), true); len(actions) > 0 {
		t.Errorf("the successor adds them again: %+v", actions)
	}

	fed, _ := shared.Step(Event{Kind: Feed, From: owner, Number: 4, Version: Version{2, 8}}, true)
	if fed.Shared.Of(former) != 2 || fed.Acknowledged.Of(former) != 0 {
		t.Errorf("after a feed of the owner, which does not have them: %+v", fed)
	}
	feed := Event{Kind: Feed, From: owner, Number: 4, Version: Version{2, 10}, Acknowledged: Acknowledged{{former, 2}}}
	if fed, _ := fed.Step(feed, true); fed.Shared != nil || fed.Acknowledged.Of(former) != 2 {
		t.Errorf("after one that has them: %+v", fed)
	}
	r.Claim.Standby = former
	if _, actions := r.Step(posted(1, 3), true); len(actions) > 0 {
		t.Errorf("a node that is no standby adds them: %s", fmt.Sprint(actions))
	}
}

// A standby that goes on from its copy keeps what is noted of a later life of a grantor than the one that has shared deltas with it.
func TestSharedDeltasOfFormerLives(t *testing.T) {
	owner, standby, former := view.Life{ID: "a", Incarnation: 1}, view.Life{ID: "b", Incarnation: 1}, view.Life{ID: "c", Incarnation: 3}
	for _, incarnation := range []uint64{4, view.UncountedIncarnation(3, time.Unix(1, 0), 0)} {
		later := view.Life{ID: "c", Incarnation: incarnation}
		r := Replica{
			Self: standby, State: Following, Claim: Claim{Number: 4, Partition: view.Partition{Owner: owner, Term: 2, Standby: standby}},
			Own: Own{standby, Deltas{1, 1}}, Copy: Copy{Version: Version{2, 7}},
		}
		next := Claim{Number: 5, Partition: view.Partition{Owner: standby, Term: 5, Predecessors: []view.Life{owner}}}
		r, _ = r.Step(Event{Kind: Posted, From: former, Deltas: Deltas{1, 6}}, true)
		if shared, _ := r.Step(Event{Kind: Posted, From: later, Deltas: Deltas{1, 2}}, true); shared.Shared.Of(former) < 5 {
			t.Errorf("the deltas of %v are gone from the copy once %v has shared some: %v", former, later, shared.Shared)
		}
		for _, e := range []Event{
			{Kind: Feed, From: owner, Number: 4, Version: Version{2, 20}, Acknowledged: Acknowledged{{later, 7}}},
			{Kind: Adopt, Claim: next},
			{Kind: Ended, From: owner},
		} {
			r, _ = r.Step(e, true)
		}
		if _, actions := r.Step(Event{Kind: Posted, From: later, Deltas: Deltas{1, 8}}, true); len(actions) > 0 {
			t.Errorf("the deltas of %v are added again: %+v", later, actions)
		}
	}
}
