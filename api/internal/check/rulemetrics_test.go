package check

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// A rule keeps its tally when the rules change, also for requests in progress with the old ones, and a
// deleted rule takes its tally with it.
func TestTalliesOutliveRules(t *testing.T) {
	parse := func(text string) *rules.Set {
		set, err := rules.Parse("f", []byte("domain: shop\nrules:\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	first := parse("- {id: a, limits: [{limit: 9, window: 1h}]}\n- {id: b, limits: [{limit: 9, window: 1h}]}\n")
	second := parse("- {id: c, limits: [{limit: 9, window: 1h}]}\n- {id: b, limits: [{limit: 7, window: 1h}]}\n")
	now := first
	ts := newTallies(prometheus.NewRegistry(), func() *rules.Set { return now }, nil)
	b := ts.of(first)[1]
	b.counts[hadRoom].Add(3)
	now = second
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			now := ts.of(second)
			now[0].counts[hadRoom].Add(1)
			now[1].counts[hadRoom].Add(1)
		})
		wg.Go(func() { ts.of(first)[1].counts[hadNone].Add(1) })
	}
	wg.Wait()
	got := ts.of(second)
	if len(got) != 2 || got[1] != b || b.counts[hadRoom].Load() != 103 || b.counts[hadNone].Load() != 100 {
		t.Errorf("%d tallies, b has %v", len(got), &b.counts)
	}
	if got[0].rule.ID != "c" || got[0].counts[hadRoom].Load() != 100 {
		t.Errorf("the first is of %s and has %v", got[0].rule.ID, &got[0].counts)
	}
	ts.of(first) // a straggler
	if again := ts.of(second); again[0] != got[0] {
		t.Error("a straggler with the old rules has thrown the tallies of the new ones away")
	}
}

// A check that ends under rules that are no longer in force leaves the lists of those that are.
func TestLateChecksKeepTheLists(t *testing.T) {
	parse := func(id string) *rules.Set {
		set, err := rules.Parse("f", []byte("domain: shop\nrules: [{id: "+id+", limits: [{limit: 9, window: 1h}]}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	first, second := parse("a"), parse("b")
	now, top := first, topkeys.NewRecorder(nil)
	ts := newTallies(prometheus.NewRegistry(), func() *rules.Set { return now }, top)
	ts.of(first)
	now = second
	ts.of(second)
	ts.of(first)
	if l := top.List(topkeys.Query{}); len(l.Unlisted) != 1 {
		t.Errorf("the lists are of %v", l.Unlisted)
	} else if _, has := l.Unlisted[topkeys.Name{Domain: "shop", ID: "b"}]; !has {
		t.Errorf("the lists are of %v", l.Unlisted)
	}
}

func TestOutcomeOf(t *testing.T) {
	for _, tc := range []struct {
		source          shard.Source
		allowed, shadow bool
		want            int
	}{
		{shard.Owner, true, false, hadRoom},
		{shard.Owner, true, true, hadRoom},
		{shard.Local, false, false, hadNone},
		{shard.Owner, false, true, hadNoneUnenforced},
		{shard.Undecided, true, false, leftUndecided},
		{shard.Overloaded, false, true, leftUndecided},
	} {
		take := shard.Take{Source: tc.source, Shadow: tc.shadow}
		take.Decision.Allowed = tc.allowed
		if got := outcomeOf(&take); got != tc.want {
			t.Errorf("%+v: %s", tc, outcomeNames[got])
		}
	}
}
