package backtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/weirlimit/weir/rules"
)

// hostileLog has, in all that a report can show, texts that would be a script, an attribute or an end of the style.
func hostileLog(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	for i, text := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</style><script>alert(1)</script>`, `' onload='alert(1)`,
		`{{.Lines}}`, "javascript:alert(1)", "</title></svg><svg onload=alert(1)>", "\x1b[2J\u202e", `&lt;b&gt;`, "\xff\xfe<b>",
	} {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		for j := range 4 + i {
			fmt.Fprintf(&out, `{"time":%d,"user":%s,"endpoint":"/x"}`+"\n", 1_770_000_000+j, quoted)
		}
	}
	return out.Bytes()
}

// The page is one document without a script, whose policy allows nothing but its own style, and hostile keys are text in it.
func TestReportOfHostileKeys(t *testing.T) {
	set, err := rules.Parse("rules.yaml", []byte(`
domain: default
rules:
  - {id: "a", per: [user], limits: [{limit: 5, window: 1m}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	other, err := rules.Parse("other.yaml", []byte(`
domain: default
rules:
  - {id: "a", per: [user], limits: [{limit: 8, window: 1m}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	run, err := New(Config{Rules: set, Against: other, Format: JSON})
	if err != nil {
		t.Fatal(err)
	}
	log := append(hostileLog(t), "<script>broken\n"...)
	if err := run.Read("<script>.log", bytes.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	res := run.Result()
	if res.Denied == 0 || res.Against.NewlyDenied == 0 || res.Skipped["broken"] != 1 {
		t.Fatalf("%d denied, %+v, %v", res.Denied, res.Against, res.Skipped)
	}
	var page bytes.Buffer
	if err := res.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	texts, policies, plots, uprights := looked(t, page.Bytes())
	for _, want := range []string{`user=<script>alert(1)</script>`, `user=</style><script>alert(1)</script>`, `user=&lt;b&gt;`, "<script>.log:"} {
		if !strings.Contains(texts, want) {
			t.Errorf("the page lacks the text %s", want)
		}
	}
	if policies != 1 || plots != 2 || uprights != 1 {
		t.Errorf("%d policies, %d plots, %d lines at the limit", policies, plots, uprights)
	}
}

// looked returns the texts of a page and what it has, and fails if there is an element or an attribute that could act.
func looked(t *testing.T, page []byte) (texts string, policies, plots, uprights int) {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		switch {
		case n.Type == html.TextNode:
			texts += n.Data + "\n"
			continue
		case n.Type != html.ElementNode:
			continue
		}
		switch n.Data {
		case "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "h4", "p", "ul", "li", "div", "table", "tbody", "tr", "th", "td", "line", "rect", "text":
		case "svg":
			plots++
		default:
			t.Errorf("an element %s", n.Data)
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "content" && strings.HasPrefix(a.Val, "default-src 'none'; style-src 'sha256-"):
				policies++
			case a.Key == "class" && a.Val == "limit":
				uprights++
			case strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "href" || a.Key == "style" || strings.Contains(a.Val, "//"):
				t.Errorf("%s has %s=%q", n.Data, a.Key, a.Val)
			}
		}
	}
	return texts, policies, plots, uprights
}

// The scale of a plot has steps that people count in, and not more than five of them.
func TestScales(t *testing.T) {
	for _, c := range []struct{ highest, step int64 }{
		{0, 1}, {1, 1}, {5, 1}, {6, 2}, {10, 2}, {11, 5}, {25, 5}, {26, 10}, {526, 200}, {1000, 200}, {1001, 500}, {math.MaxInt64, 2_000_000_000_000_000_000},
	} {
		if got := gridStep(c.highest); got != c.step {
			t.Errorf("up to %d in steps of %d, want %d", c.highest, got, c.step)
		}
	}
	var p plot
	p.begin("more than can be", math.MaxInt64, 1)
	p.column(0, math.MaxInt64, "checks", "")
	if text := p.String(); strings.Contains(text, "NaN") || strings.Contains(text, ">-") || !strings.Contains(text, `>1e+10G<`) {
		t.Errorf("a scale of all numbers: %s", text)
	}
	p = plot{}
	p.begin("all", 526, 10)
	if text := p.String(); strings.Count(text, "<line") != 4 || !strings.Contains(text, ">600<") || !strings.Contains(text, ">200<") {
		t.Errorf("a scale up to 526: %s", text)
	}
	if a, b, c := timesText(binEnd(7)), timesText(binEnd(binAtLimit)), timesText(binEnd(39)); a != "1/64" || b != "limit" || c != "4 times" {
		t.Errorf("%s, %s, %s", a, b, c)
	}
}

// The four numbers of a comparison are all lines.
func TestComparisonInThePage(t *testing.T) {
	const text = "domain: default\nrules: [{id: a, per: [user], limits: [{limit: LIMIT, window: 1h, algorithm: fixed_window}]}]"
	var sets []*rules.Set
	for _, limit := range []string{"5", "8"} {
		set, err := rules.Parse("rules.yaml", []byte(strings.Replace(text, "LIMIT", limit, 1)))
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, set)
	}
	run, err := New(Config{Format: JSON, Rules: sets[0], Against: sets[1]})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Read("log", strings.NewReader(secondsLog(slices.Repeat([]int64{1_770_000_000}, 20)...))); err != nil {
		t.Fatal(err)
	}
	res := run.Result()
	if c := res.Against; c.BothDenied() != 12 || c.NewlyDenied != 3 || c.NewlyAllowed != 0 || c.BothAllowed() != 5 {
		t.Errorf("%d %d %d %d", c.BothDenied(), c.NewlyDenied, c.NewlyAllowed, c.BothAllowed())
	}
	var page strings.Builder
	if err := res.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if want := `denied by these rules</th><td class="number">12</td><td class="number">3</td>`; !strings.Contains(page.String(), want) {
		t.Errorf("the page lacks %s", want)
	}
}
