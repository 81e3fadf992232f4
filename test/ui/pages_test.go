package uitest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const someRules = `domain: default
rules:
  - id: per-user
    when: {endpoint: "/posts*"}
    per: [user]
    limits: [{limit: 100, window: 1m}]
  - id: partner-quota
    when: {partner: "*"}
    per: [partner]
    limits: [{limit: 100000, window: 24h, algorithm: token_bucket, burst: 5000}]
    enforce: 10
  - id: login/attempts
    when: {endpoint: /login}
    per: [ip]
    limits: [{limit: 5, window: 1m}, {limit: 50, window: 1h}]
  - id: crawlers
    when: {agent: "re:(?i)bot|spider"}
    limits: [{limit: 20, window: 1s}]
    enforce: 0
---
domain: payments
rules:
  - id: cards
    per: [[merchant, card]]
    limits: [{limit: 30, window: 1h}]
    on_failure: deny
`

// load makes checks at nodes until the test ends.
func load(t *testing.T, nodes ...*process.Node) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			n := nodes[i%len(nodes)]
			user := fmt.Sprintf("user-%d", i%97)
			if i%3 == 0 {
				user = "alice"
			}
			_, _ = n.Client.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: user, Endpoint: "/posts"}) // a node may be dead
		}
	}()
	t.Cleanup(func() { close(stop); <-ended })
}

// The overview shows the nodes and what they answer, and goes on to: a node that is killed is seen as such in the open page.
func TestOverview(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, "ams-1", "fra-1", "lon-1")
	apply(t, nodes[0], someRules)
	load(t, nodes[0], nodes[1])
	b := open(t)
	start := time.Now()
	b.visit("http://" + nodes[0].HTTP + "/ui/")
	t.Logf("first paint after %v, loaded after %v", b.paint(), time.Since(start))
	b.await("#nodes", "lon-1")
	b.await("#problems", "No node reports a problem.")
	b.await("#tiles", "Nodes ready\n3 of 3")
	process.Await(t, process.Patience/2, func() error { return moved(b) })
	b.accessible()
	b.visit("http://" + nodes[0].HTTP + "/ui/")
	if *screenshots {
		wait := time.NewTimer(25 * time.Second) // for charts that show something
		<-wait.C
	}
	b.picture("dashboard-overview", "light", 1280)
	b.picture("dashboard-overview-dark", "dark", 1280)
	nodes[2].Kill()
	b.await("#nodes", "unreachable")
	b.await("#problems", "lon-1")
	b.picture("dashboard-problem", "light", 1280)
	b.accessible()
	nodes[0].Kill()
	b.await("#live-state", "This node does not answer since")
}

// moved returns an error until checks are seen in the tiles, and drawn.
func moved(b *browser) error {
	tiles := b.text("#tiles")
	drawn := eval[int](b, `document.querySelectorAll("#chart-checks canvas, #chart-latency canvas").length`)
	if !strings.Contains(tiles, "/s") || strings.Contains(tiles, "Allowed\n0/s") || drawn != 2 {
		return fmt.Errorf("tiles %q, %d charts", tiles, drawn)
	}
	return nil
}

// The rules are listed and found, each has a page, and there is a page without rules.
func TestRules(t *testing.T) {
	t.Parallel()
	n := cluster(t, "a")[0]
	b := open(t)
	b.visit("http://" + n.HTTP + "/ui/rules")
	b.await("main", "There are no rules yet")
	b.accessible()
	apply(t, n, someRules)
	b.visit("http://" + n.HTTP + "/ui/rules")
	b.await("tbody", "per-user")
	b.await("tbody", "30 per 1h")
	b.accessible()
	b.picture("dashboard-rules", "light", 1280)
	b.do(chromedp.SendKeys(chromedp.CSS("#q"), "login\r"))
	b.await("tbody", "login/attempts")
	process.Await(t, process.Patience/2, func() error {
		if text := b.text("tbody"); strings.Contains(text, "per-user") {
			return fmt.Errorf("a search for login shows %q", text)
		}
		return nil
	})
	b.do(chromedp.Click(chromedp.CSS("tbody a")))
	b.await("main", "endpoint = /login")
	b.await("h1", "login/attempts")
	b.accessible()
	b.visit("http://" + n.HTTP + "/ui/rules?q=nothing+has+this")
	b.await("main", "No rule matches")
	b.visit("http://" + n.HTTP + "/ui/rules/default/none")
	b.await("h1", "Not found")
	b.accessible()
}

// The busiest keys are listed as they come in, by checks and by denials, for one rule, and each leads to the inspector.
func TestTopKeys(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, "a", "b")
	b := open(t)
	b.visit("http://" + nodes[0].HTTP + "/ui/top")
	b.await("#top", "No check yet")
	b.accessible()
	apply(t, nodes[0], "domain: default\nrules:\n  - id: posts\n    when: {endpoint: \"/posts*\"}\n    per: [user]\n    limits: [{limit: 20, window: 1h}]\n  - id: everything\n    limits: [{limit: 100000, window: 1h}]\n  - id: strict\n    per: [user]\n    limits: [{limit: 1, window: 1h}]\n    enforce: 0\n")
	load(t, nodes...)
	b.await("#top tbody", "user=alice") // without another visit
	b.accessible()
	b.picture("dashboard-top", "light", 1280)
	b.visit("http://" + nodes[1].HTTP + "/ui/top?by=denied&rule=posts")
	b.await("#top tbody", "user=alice")
	if rows := b.text("#top tbody"); strings.Contains(rows, "everything") {
		t.Errorf("keys of other rules are listed: %q", rows)
	}
	b.await("#top", "at 2 nodes")
	b.visit("http://" + nodes[1].HTTP + "/ui/top?by=would_deny&window=1h")
	b.await("#top tbody", "strict")
	b.visit("http://" + nodes[1].HTTP + "/ui/top?by=denied&rule=posts")
	b.do(chromedp.Click(chromedp.CSS("#top tbody th a")))
	b.await("h1", "Inspector")
	b.await(".decision .badge", "denied")
	b.await("main", "20 of 20 used")
	b.visit("http://" + nodes[0].HTTP + "/ui/top?rule=none")
	b.await("#top", `has no rule "none"`)
	b.accessible()
	nodes[0].Kill()
	b.await("#live-state", "This node does not answer since")
	b.accessible()
	nodes[0].Restart()
	b.await("#live-state", "Which keys clients ask for most")
}

// The ring changes in the open page when a node comes, and a click on a node shows its partitions.
func TestRingMoves(t *testing.T) {
	t.Parallel()
	etcd := process.StartEtcd(t)
	a := process.Start(t, "--id", "a", "--etcd", etcd.Endpoint)
	process.AwaitMembers(t, process.Patience, a)
	b := open(t)
	b.visit("http://" + a.HTTP + "/ui/ring")
	b.await("#ring", "a owns ")
	other := process.Start(t, "--id", "b", "--etcd", etcd.Endpoint)
	process.AwaitMembers(t, process.Patience, a, other)
	b.await("#ring", "b owns ")
	process.Await(t, process.Patience/2, func() error {
		if colours := eval[int](b, `new Set([...document.querySelectorAll("svg.ring rect")].map((r) => getComputedStyle(r).fill)).size`); colours != 2 {
			return fmt.Errorf("two nodes have %d colours", colours)
		}
		return nil
	})
	b.await("#ring", "None is being handed over.")
	b.do(chromedp.Click(chromedp.CSS("#ring li:last-child a")))
	process.Await(t, process.Patience/2, func() error {
		if at := eval[string](b, "location.search"); at != "?node=b" {
			return fmt.Errorf("the page is %q", at)
		}
		return nil
	})
	b.accessible()
	a.Kill()
	b.await("#live-state", "This node does not answer since")
}
