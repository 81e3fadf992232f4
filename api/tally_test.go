package api

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/rules"
)

// A rule keeps its tally when the rules change, whoever is still at work with the old
// ones, and one that is gone takes its tally with it.
func TestTalliesOutliveRules(t *testing.T) {
	parse := func(text string) *rules.Set {
		set, err := rules.Parse("f", []byte("domain: default\nrules:\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	first := parse("- {id: a, limits: [{limit: 9, window: 1h}]}\n- {id: b, limits: [{limit: 9, window: 1h}]}\n")
	second := parse("- {id: c, limits: [{limit: 9, window: 1h}]}\n- {id: b, limits: [{limit: 7, window: 1h}]}\n")
	now := first
	ts := newTallies(prometheus.NewRegistry(), func() *rules.Set { return now })
	b := ts.of(first)[1]
	b.counts[hadRoom].Add(3)
	now = second
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { ts.of(second)[1].counts[hadRoom].Add(1) })
		wg.Go(func() { ts.of(first)[1].counts[hadNone].Add(1) })
	}
	wg.Wait()
	got := ts.of(second)
	if len(got) != 2 || got[1] != b || b.counts[hadRoom].Load() != 103 || b.counts[hadNone].Load() != 100 {
		t.Errorf("%d tallies, b has %v", len(got), &b.counts)
	}
	if got[0].rule.ID != "c" {
		t.Errorf("the first is of %s", got[0].rule.ID)
	}
}
