package uitest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// check asks for alice, and reports whether that was allowed.
func check(t *testing.T, n *process.Node) bool {
	t.Helper()
	resp, err := n.Client.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice", Endpoint: "/posts"})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetAllowed()
}

// write replaces the text in the form of a rule.
func (b *browser) write(text string) {
	b.t.Helper()
	eval[bool](b, fmt.Sprintf(`(() => { const t = document.querySelector("#text"); t.value = %q; t.dispatchEvent(new Event("input", {bubbles: true})); return true })()`, text))
}

// click clicks, and waits for the page that this leads to.
func (b *browser) click(selector, heading string) {
	b.t.Helper()
	eval[bool](b, "(window.left = true)") // the page that follows may have the same heading
	b.do(chromedp.Click(chromedp.CSS(selector)))
	process.Await(b.t, process.Patience/2, func() error {
		left, err := chromedp.Run(b, chromedp.Evaluate[bool]("window.left === true"))
		if err == nil && left {
			err = errors.New("no other page has followed")
		}
		return err
	})
	b.await("h1", heading)
}

// A rule is written in the browser, with the validator's words while it is typed; it denies, is explained, edited, rolled out by steps,
// switched off and deleted.
func TestRuleFromFormToEnd(t *testing.T) {
	t.Parallel()
	n := cluster(t, "a", "b")[0]
	b := open(t)
	b.visit("http://" + n.HTTP + "/ui/rules")
	b.click("main .empty a", "New rule")
	b.write("domain: default\nrules:\n  - id: posts\n    per: [user]\n    limits: [{limit: 2, window: 1 fortnight}]\n")
	b.await("#verdict", "Not valid yet")
	b.await("#verdict", "window")
	b.accessible()
	b.write("domain: default\nrules:\n  - id: posts\n    when: {endpoint: \"/posts*\"}\n    per: [user]\n    limits: [{limit: 2, window: 1h}]\n    enforce: 0\n")
	b.await("#verdict", "posts")
	b.await("#verdict", "new")
	b.click("#save", "posts")
	b.await("main", "endpoint = /posts*")
	b.accessible()
	for range 5 {
		if !check(t, n) {
			t.Fatal("a shadow rule denies")
		}
	}

	eval[bool](b, `(() => { const p = document.querySelector("#percent"); p.value = 100; p.dispatchEvent(new Event("input", {bubbles: true})); return true })()`)
	b.await("#percent-shown", "100 %")
	b.do(chromedp.Click(chromedp.CSS("form.slide button")))
	b.await(".head", "enforced")
	process.Await(t, process.Patience/2, func() error {
		if check(t, n) {
			return fmt.Errorf("the rule does not deny")
		}
		return nil
	})

	b.visit("http://" + n.HTTP + "/ui/inspect")
	b.await("main", "Ask about a request")
	b.accessible()
	b.do(chromedp.SendKeys(chromedp.CSS("#q"), "user=alice endpoint=/posts\r"))
	b.await(".decision .badge", "denied")
	b.await("main", "2 of 2 used")
	b.await("main", "Owner ")
	b.accessible()
	process.Await(t, process.Patience/2, func() error { // a node of a busy machine may not answer in time, and the page says so
		b.visit("http://" + n.HTTP + "/ui/inspect?q=user%3Dalice+endpoint%3D%2Fposts")
		b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("form[action='/ui/reset'] button").click()`))
		process.Await(t, process.Patience/2, func() error {
			if main := b.text("main"); main == "" || strings.Contains(main, "denies it") {
				return fmt.Errorf("the page is still %q", main)
			}
			return nil
		})
		if main := b.text("main"); !strings.Contains(main, "are allowed right now") {
			return fmt.Errorf("after the reset: %q", main)
		}
		return nil
	})
	if !check(t, n) {
		t.Error("denied after a reset")
	}

	b.visit("http://" + n.HTTP + "/ui/rules/default/posts")
	b.click("#edit-text", "Edit posts")
	text := eval[string](b, `document.querySelector("#text").value`)
	if !strings.Contains(text, "limit: 2") {
		t.Errorf("the form has %q", text)
	}
	b.write(strings.Replace(text, "limit: 2", "limit: 30", 1))
	b.await("#verdict", "What changes")
	b.await("#verdict", "limits[0].limit")
	b.picture("dashboard-edit", "light", 1280)
	b.accessible()
	apply(t, n, "domain: default\nrules:\n  - id: other\n    limits: [{limit: 9, window: 1s}]\n") // another caller is faster
	b.do(chromedp.Click(chromedp.CSS("#save")))
	b.await("#verdict", "revision")
	b.visit("http://" + n.HTTP + "/ui/edit-rule/default/posts")
	b.write(strings.Replace(text, "limit: 2", "limit: 30", 1))
	b.await("#verdict", "What changes")
	b.click("#save", "posts")
	b.await("main", "30 per 1h")

	b.do(chromedp.Click(chromedp.CSS("button[value=off]")))
	b.await(".head", "off")
	b.do(chromedp.Click(chromedp.CSS("button[value=on]")))
	b.await(".head", "enforced")
	b.do(chromedp.Click(chromedp.CSS("summary")))
	b.do(chromedp.Click(chromedp.CSS("button[value=delete]")))
	b.await("h1", "Rules")
	b.await("tbody", "other")
	if rows := b.text("tbody"); strings.Contains(rows, "posts") {
		t.Errorf("the deleted rule is listed: %q", rows)
	}
	b.visit("http://" + n.HTTP + "/ui/events")
	b.await("tbody", "Rule deleted")
	b.await("tbody", "Counters reset")
	b.await("tbody", "default/posts")
	b.accessible()
}

// Text that a caller chooses is text on every page.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	n := cluster(t, "a")[0]
	const evil = `"><script>document.title='taken'</script><img src=x onerror=alert(1)>`
	apply(t, n, fmt.Sprintf("domain: default\nrules:\n  - id: evil\n    when: {path: %q}\n    per: [%q]\n    limits: [{limit: 9, window: 1s}]\n", evil, `<b onclick=alert(2)>user</b>`))
	b := open(t)
	for _, path := range []string{"/ui/rules", "/ui/rules/default/evil", "/ui/edit-rule/default/evil", "/ui/edit-fields/default/evil", "/ui/backtest?domain=default&id=evil"} {
		b.visit("http://" + n.HTTP + path)
		b.clean(path)
	}
	b.visit("http://" + n.HTTP + "/ui/inspect")
	b.do(chromedp.SendKeys(chromedp.CSS("#q"), `user="<img src=x onerror=alert(3)>" path="</script><script>alert(4)</script>"`+"\r"))
	b.await("main", "Rules that do not apply")
	b.clean("inspect")
	b.visit("http://" + n.HTTP + "/ui/events")
	b.clean("events")
	if _, err := n.Client.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: `<b onclick=alert(2)>user</b>`, Identifier: evil, Attributes: map[string]string{"path": evil}}); err != nil {
		t.Fatal(err)
	}
	b.visit("http://" + n.HTTP + "/ui/top")
	b.await("#top tbody", "onerror=alert(1)")
	b.clean("top")
}

// clean fails if a page has elements that only a hostile text can have made.
func (b *browser) clean(path string) {
	b.t.Helper()
	if made := eval[int](b, `document.querySelectorAll("main img, main script:not(#points), main b[onclick]").length`); made != 0 {
		b.t.Errorf("%s: a text has become %d elements", path, made)
	}
	if title := eval[string](b, "document.title"); title == "taken" {
		b.t.Errorf("%s: a script has run", path)
	}
}

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
