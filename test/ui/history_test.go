package uitest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

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

// With TLS a browser signs in with a token, sees what the token's roles permit, and signs out. No script reads the cookie.
func TestSignIn(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	n := p.Start("a")
	process.AwaitMembers(t, process.Patience, n)
	token := strings.TrimSpace(weir(t, "", append([]string{"tokens", "create", "ana", "--role", "metrics,rules", "--node", n.GRPC}, p.Flags("client-admin")...)...))
	b := open(t)
	b.visit("https://" + n.HTTP + "/ui/rules")
	b.await("h1", "Sign in")
	b.accessible()
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), "weir_wrong\r"))
	b.await("#problem", "unknown")
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), token+"\r"))
	b.await("h1", "Rules")
	b.await(".caller", "ana")
	if cookies := eval[string](b, "document.cookie"); cookies != "" {
		t.Errorf("a script reads %q", cookies)
	}
	for _, c := range call(b, network.GetCookies, network.GetCookiesParams{URLs: []string{"https://" + n.HTTP + "/ui/"}}).Cookies {
		if !c.HTTPOnly || !c.Secure || c.SameSite != network.CookieSameSiteLax || c.Path != "/ui/" || !c.Session {
			t.Errorf("the cookie is %+v", c)
		}
	}
	b.visit("https://" + n.HTTP + "/ui/")
	b.await("h1", "Overview")
	b.await("#nodes", "ready")
	b.visit("https://" + n.HTTP + "/ui/ring")
	b.await("h1", "Your role does not permit this")
	b.accessible()

	// A link of another site keeps the session, and a form of one changes nothing, not even the session.
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a id="link" href="https://%s/ui/rules">rules</a><form method="post" action="https://%[1]s/ui/sign-out"><button>go</button></form>`, n.HTTP)
	}))
	defer other.Close()
	b.visit(other.URL)
	b.do(chromedp.Click(chromedp.CSS("button")))
	b.await("body", "cross-origin")
	b.visit(other.URL)
	b.do(chromedp.Click(chromedp.CSS("#link")))
	b.await("h1", "Rules")
	b.await(".caller", "ana")
	b.visit("https://" + n.HTTP + "/ui/ring")
	b.do(chromedp.Click(chromedp.CSS(".caller button")))
	b.await("h1", "Sign in")
	b.visit("https://" + n.HTTP + "/ui/rules")
	b.await("h1", "Sign in")
}

// An open page asks the node for news once in two seconds at most, and is painted first about as soon as any page. What it costs the node's processor is
// logged: it is less than what an idle node uses now and then more.
func TestCostOfADashboard(t *testing.T) {
	process.NotInBrief(t)
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

// paintRatio is how many times as long the first paint of the overview may take as that of a page of one line, in the same run.
const paintRatio = 4

// measured is how long the processor's time is measured, and askedEvery how often a page asks for news.
const (
	measured   = 6 * time.Second
	askedEvery = 2 * time.Second
)
