package uitest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

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

// A rule is made and changed field by field, and what the form does not know stays.
func TestRuleByFields(t *testing.T) {
	t.Parallel()
	n := cluster(t, "a")[0]
	b := open(t)
	b.visit("http://" + n.HTTP + "/ui/new-fields")
	b.fill("#id", "posts")
	b.fill("#when-name-0", "endpoint")
	b.fill("#when-values-0", "/posts*\n/comments*")
	b.fill("#limit-0", "many")
	b.await("#verdict", `"many" is not a whole number`)
	b.accessible()
	b.fill("#limit-0", "3")
	b.fill("#window-0", "1 fortnight")
	b.await("#verdict", "window")
	b.fill("#window-0", "1h")
	b.fill("#enforce", "100")
	b.await("#verdict", "new")
	b.picture("dashboard-fields", "light", 1280)
	b.click("#save", "posts")
	b.await("main", "endpoint = /comments* or /posts*")
	b.await("main", "3 per 1h")
	allowed := 0
	process.Await(t, process.Patience/2, func() error {
		if check(t, n) {
			allowed++
			return fmt.Errorf("the rule does not deny")
		}
		return nil
	})
	if allowed < 3 {
		t.Errorf("%d checks were allowed", allowed)
	}
	b.visit("http://" + n.HTTP + "/ui/new-fields")
	b.fill("#id", "posts")
	b.await("#verdict", `there is a rule "posts" in domain "default" already`)
	b.accessible()
	b.click("#save", "New rule")
	b.await("#verdict", `there is a rule "posts" in domain "default" already`)
	apply(t, n, strings.Replace(stricter, "limits:", "cost: 2\n    limits:", 1))
	b.visit("http://" + n.HTTP + "/ui/edit-fields/default/posts")
	b.await("main", "no fields for cost")
	b.fill("#limit-0", "40")
	b.await("#verdict", "What changes")
	b.accessible()
	b.do(chromedp.Click(chromedp.CSS("button[value=text]")))
	b.await("label", "as in a file of rules")
	b.click("#save", "posts")
	if rules := weir(t, "", "rules", "export", "--node", n.GRPC); !strings.Contains(rules, "cost: 2") || !strings.Contains(rules, "limit: 40") {
		t.Errorf("the rules are\n%s", rules)
	}
}
