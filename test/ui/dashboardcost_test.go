package uitest

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// paintRatio is how many times as long the first paint of the overview may take as that of a page of one line, in the same run.
const paintRatio = 4

// measured is how long the processor's time is measured, and askedEvery how often a page asks for news.
const (
	measured   = 6 * time.Second
	askedEvery = 2 * time.Second
)

// An open page asks the node for news once in two seconds at most, and is painted first about as soon as any page. What it costs the node's processor is
// logged: it is less than what an idle node uses now and then more.
func TestCostOfADashboard(t *testing.T) {
	testform.NotInBrief(t)
	n := cluster(t, "a", "b", "c")[0]
	apply(t, n, someRules)
	measure := func() time.Duration {
		before := process.CPU(t, n.PID())
		<-time.NewTimer(measured).C
		return process.CPU(t, n.PID()) - before
	}
	for range 500 { // keys that are listed
		check(t, n)
	}
	b := open(t)
	b.visit("about:blank")
	idle := measure()
	var paints, plain []time.Duration // plain is of a page of one line, which costs the browser what it must
	for range 9 {
		b.visit("http://" + n.HTTP + "/ui/")
		paints = append(paints, b.paint())
		b.visit("http://" + n.HTTP + "/readyz")
		plain = append(plain, b.paint())
	}
	asking := map[string]time.Duration{"/ui/": 0, "/ui/top": 0, "/ui/ring": 0} // the pages that ask for news
	for page := range asking {
		b.visit("http://" + n.HTTP + page)
		asking[page] = measure()
		most := float64(measured/askedEvery + 1)
		if asked := eval[float64](b, `performance.getEntriesByType("resource").filter(e => e.initiatorType === "fetch").length`); asked < 1 || asked > most {
			t.Errorf("%s, open for %v, has asked %v times, want 1 to %v", page, measured, asked, most)
		}
	}
	b.visit("about:blank")
	idle = min(idle, measure()) // a node that has just begun does more
	for page, used := range asking {
		cost := float64(used-idle) / float64(measured) * 100
		t.Logf("%s: %.2f %% of a processor more than the %.2f %% without a page", page, cost, float64(idle)/float64(measured)*100)
	}
	t.Logf("first paints %v, of a page of one line %v", paints, plain)
	if best, least := slices.Min(paints), slices.Min(plain); best > paintRatio*least {
		t.Errorf("the first paint takes %v at best, and that of a page of one line %v", best, least)
	}
}
