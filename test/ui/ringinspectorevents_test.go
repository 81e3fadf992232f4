package uitest

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

// The inspector and the ring show where counters are.
func TestRingAndInspector(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, "ams-1", "fra-1", "lon-1")
	apply(t, nodes[0], someRules)
	for range 70 {
		check(t, nodes[0])
	}
	b := open(t)
	b.visit("http://" + nodes[0].HTTP + "/ui/ring")
	b.await("main", "fra-1 owns ")
	if cells := eval[int](b, `document.querySelectorAll("svg.ring g").length`); cells != 1021 && cells < 100 {
		t.Errorf("%d partitions", cells)
	}
	b.accessible()
	b.picture("dashboard-ring", "light", 1280)
	b.visit("http://" + nodes[0].HTTP + "/ui/inspect?q=user%3Dalice+endpoint%3D%2Fposts")
	b.await("main", " of 100 used with this request")
	killed := time.Now().UTC().Format(time.RFC3339)
	nodes[2].Kill()
	// Nodes of a busy machine may have been unreachable before.
	for _, want := range []struct{ what, of, node string }{
		{"Node unreachable", "lon-1", "fra-1"}, {"Problem began", "node lon-1 does not answer", "fra-1"}, {"Problem ended", "node lon-1 does not answer", "fra-1"},
	} {
		process.Await(t, process.Patience, func() error {
			b.visit("http://" + nodes[0].HTTP + "/ui/events")
			seen := fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].some((r) => [%q, %q, %q].every((w) => r.innerText.includes(w)) && r.querySelector("time").dateTime >= %q)`, want.what, want.of, want.node, killed)
			if !eval[bool](b, seen) {
				return fmt.Errorf("%+v is not in %q", want, b.text("tbody"))
			}
			return nil
		})
	}
	b.await("tbody", "its standbys decide its keys")
	b.await("tbody", "it lasted ")
	b.accessible()
	b.picture("dashboard-events", "light", 1280)
}
