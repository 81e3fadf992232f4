package uitest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// A browser goes back to an earlier revision of the rules: what was added since is gone, what was changed is as it was.
func TestRollBack(t *testing.T) {
	t.Parallel()
	n := cluster(t, "a")[0]
	b := open(t)
	b.visit("http://" + n.HTTP + "/ui/history")
	b.await("main", "No revision yet")
	b.accessible()
	apply(t, n, "domain: default\nrules:\n  - id: z\n    per: [user]\n    limits: [{limit: 2, window: 1h}]\n  - id: a\n    limits: [{limit: 500, window: 1s}]\n")
	before := weir(t, "", "rules", "export", "--node", n.GRPC)
	apply(t, n, "domain: default\nrules:\n  - id: z\n    per: [user]\n    limits: [{limit: 999, window: 1h}]\n")
	apply(t, n, "domain: other\nrules:\n  - id: late\n    limits: [{limit: 7, window: 1s}]\n")
	process.Await(t, process.Patience/2, func() error { // changes that follow each other at once are revisions of their own
		b.visit("http://" + n.HTTP + "/ui/history")
		rows := eval[string](b, `[...document.querySelectorAll("tbody tr")].map((r) => r.querySelector("th").innerText + " " + r.cells[3].innerText).join(", ")`)
		if want := "3 Rules applied rules.yaml other/late, 2 Rules applied rules.yaml default/z, 1 Rules applied rules.yaml default/z default/a"; rows != want {
			return fmt.Errorf("the revisions are %q, want %q", rows, want)
		}
		return nil
	})
	b.accessible()
	b.picture("dashboard-history", "light", 1280)
	b.visit("http://" + n.HTTP + "/ui/history/1")
	b.await("#verdict", "limits[0].limit")
	b.await("#verdict", "late")
	b.accessible()
	b.click("#back", "Rules")
	b.await("tbody", "2 per 1h")
	if after := weir(t, "", "rules", "export", "--node", n.GRPC); strings.TrimSuffix(after, "---\ndomain: other\nrules: []\n") != before && after != before {
		t.Errorf("the rules are\n%s\nand were\n%s", after, before)
	}
	b.visit("http://" + n.HTTP + "/ui/history/99")
	b.await("h1", "Not found")
}
