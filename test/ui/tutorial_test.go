package uitest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/test/pageplayer"
	"github.com/weirlimit/weir/test/process"
)

const tutorial = "docs/tutorial.md"

// A reader of the tutorial does what it says, and nothing else: commands in terminals, and numbered steps in a browser. Each does what
// the page says.
func TestTutorial(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../" + tutorial)
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{browser: open(t), player: pageplayer.New(t, tutorial)}
	w.player.Daily = true
	steps, typed, clicked := walkOf(t, string(text)), 0, 0
	for _, s := range steps {
		if s.sentence == "" {
			w.player.Do(s.command)
			typed++
			continue
		}
		w.do(s)
		clicked++
	}
	if typed < 10 || clicked < 20 || w.player.Compared < 10 {
		t.Errorf("%s has %d commands, %d with outputs, and %d steps in the browser", tutorial, typed, w.player.Compared, clicked)
	}
}

// walkStep is one thing that a reader does: a command, or a sentence of a numbered list.
type walkStep struct {
	line     int
	command  pageplayer.Step
	sentence string
	rule     string // the last one that is shown before it
}

// Numbered steps in a document, except those of its contents, and the ends of sentences.
var (
	numbered    = regexp.MustCompile(`^\d+\. +([^\[].*)$`)
	sentenceEnd = regexp.MustCompile(`\.(?: |$)`)
)

// walkOf returns the commands of a document, and the sentences of its numbered lists, in order. A step stands on one line.
func walkOf(t *testing.T, document string) (all []walkStep) {
	t.Helper()
	for _, s := range pageplayer.Steps(document, []string{"weir", "curl"}) {
		all = append(all, walkStep{line: s.Line, command: s})
	}
	block, rule := "", ""
	lines := strings.Split(document, "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "```"):
			if block == "yaml" {
				block = ""
			} else if block = strings.TrimPrefix(line, "```"); block == "yaml" {
				rule = ""
			}
		case block == "yaml":
			rule += line + "\n"
		}
		found := numbered.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		if next := lines[i+1]; next != "" && !numbered.MatchString(next) {
			t.Fatalf("%s:%d: a step of the browser is longer than a line: %q", tutorial, i+2, next)
		}
		for _, sentence := range sentenceEnd.Split(found[1], -1) {
			if sentence != "" {
				all = append(all, walkStep{line: i + 1, sentence: sentence, rule: rule})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b walkStep) int { return a.line - b.line })
	return all
}

// walk is a reader with two terminals and a browser.
type walk struct {
	*browser
	player   *pageplayer.Player
	followed bool // the page came by a link, and can be loaded again
}

// The forms of sentences, by what they begin with.
var (
	opening   = regexp.MustCompile(`^Open <(http://127\.0\.0\.1:\d+/\S*)>$`)
	pressing  = regexp.MustCompile(`^Press \*\*[^*]+\*\*(?:, then \*\*[^*]+\*\*)*(?: in the row of ` + "`([^`]+)`)?$")
	replacing = regexp.MustCompile(`^Replace the text at \*\*([^*]+)\*\* by the rule above$`)
	choosing  = regexp.MustCompile("^Choose the file `([^`]+)` at " + `\*\*([^*]+)\*\*$`)
	moving    = regexp.MustCompile(`^Move the slider below \*\*([^*]+)\*\* to ` + "`([0-9]+ %)`$")
	showing   = regexp.MustCompile("^The page shows .*`")
	inRow     = regexp.MustCompile("^The page shows `([^`]+)` in the row of `([^`]+)`(?:, [^`]*)?$")
	quoted    = regexp.MustCompile("`([^`]+)`")
	bold      = regexp.MustCompile(`\*\*([^*]+)\*\*`)
)

// do does what a sentence says.
func (w *walk) do(s walkStep) {
	w.t.Helper()
	where := fmt.Sprintf("%s:%d: %s", tutorial, s.line, s.sentence)
	switch {
	case opening.MatchString(s.sentence):
		w.visit(strings.Replace(opening.FindStringSubmatch(s.sentence)[1], "127.0.0.1", process.Host(w.t), 1))
		w.followed = true
	case pressing.MatchString(s.sentence):
		for _, what := range bold.FindAllStringSubmatch(s.sentence, -1) {
			w.press(where, what[1], pressing.FindStringSubmatch(s.sentence)[1])
		}
	case replacing.MatchString(s.sentence):
		w.fill("#"+w.field(where, replacing.FindStringSubmatch(s.sentence)[1]), s.rule)
	case choosing.MatchString(s.sentence):
		found := choosing.FindStringSubmatch(s.sentence)
		file, err := filepath.Abs("../../" + found[1])
		if err != nil {
			w.t.Fatal(err)
		}
		w.browser.do(chromedp.SetUploadFiles(chromedp.CSS("#"+w.field(where, found[2])), []string{file}))
	case moving.MatchString(s.sentence):
		found := moving.FindStringSubmatch(s.sentence)
		w.move(where, found[1], found[2])
	case inRow.MatchString(s.sentence):
		found := inRow.FindStringSubmatch(s.sentence)
		w.shows(where, rowOf(found[2]), found[1])
	case showing.MatchString(s.sentence):
		for _, q := range quoted.FindAllStringSubmatch(s.sentence, -1) {
			w.shows(where, `document.querySelector("main")`, q[1])
		}
	default:
		w.t.Fatalf("%s: this is not a step that a reader can do in the browser", where)
	}
}

// rowOf is a script for the row of a table whose heading begins with this line.
func rowOf(heading string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("tr")].find((r) => r.querySelector("th")?.innerText.trim().split("\n")[0] === %q)`, heading)
}

// press clicks on a link, a button, or a heading that opens a part of the page: the first one with this text, in the row with a
// heading if one is named. It waits for the page that follows.
func (w *walk) press(where, text, row string) {
	w.t.Helper()
	within := "document"
	if row != "" {
		within = rowOf(row)
	}
	// A live part may replace what is pressed: it is found and pressed at once.
	script := fmt.Sprintf(`(() => {
		const words = (e) => { const c = e.cloneNode(true); c.querySelectorAll(".hidden").forEach((h) => h.remove()); return c.textContent.replace(/\s+/g, " ").trim(); };
		if (document.readyState !== "complete") return "";
		const at = [...(%s?.querySelectorAll("a, button, summary") ?? [])].find((e) => words(e) === %q && e.checkVisibility() && !e.disabled);
		if (!at) return "";
		if (at.tagName !== "SUMMARY") window.left = true;
		at.click();
		return at.tagName;
	})()`, within, text)
	pressed := ""
	process.Await(w.t, process.Patience/2, func() (err error) {
		if pressed, err = chromedp.Run(w, chromedp.Evaluate[string](script)); err == nil && pressed == "" {
			err = fmt.Errorf("%s: the page has nothing to press with the text %q:\n%s", where, text, w.text("body"))
		}
		return err
	})
	process.Await(w.t, process.Patience/2, func() error {
		there, err := chromedp.Run(w, chromedp.Evaluate[bool](`window.left !== true && document.readyState === "complete"`))
		if err == nil && !there {
			err = fmt.Errorf("%s: no other page has followed", where)
		}
		return err
	})
	w.followed = pressed == "A"
}

// field returns the id of the field whose label begins with a text.
func (w *walk) field(where, label string) string {
	w.t.Helper()
	id := eval[string](w.browser, fmt.Sprintf(`[...document.querySelectorAll("label:not(.hidden)")].find((l) => l.innerText.startsWith(%q))?.htmlFor ?? ""`, label))
	if id == "" {
		w.t.Fatalf("%s: the page has no field %q:\n%s", where, label, w.text("main"))
	}
	return id
}

// move moves the slider in the section with a heading.
func (w *walk) move(where, heading, to string) {
	w.t.Helper()
	script := fmt.Sprintf(`(() => {
		const section = [...document.querySelectorAll("section")].find((s) => s.querySelector("h2")?.innerText === %q), slider = section?.querySelector("input[type=range]");
		if (!slider) return "no slider";
		slider.value = parseInt(%q);
		slider.dispatchEvent(new Event("input", {bubbles: true}));
		return section.querySelector("output").innerText;
	})()`, heading, to)
	if shown := eval[string](w.browser, script); shown != to {
		w.t.Fatalf("%s: the page shows %q:\n%s", where, shown, w.text("main"))
	}
}

// shows waits until an element, which a script finds, shows a text. A page that came by a link is loaded again meanwhile, as what it
// shows may take a moment.
func (w *walk) shows(where, element, want string) {
	w.t.Helper()
	want = strings.ReplaceAll(want, "\u00a0", " ")
	script := fmt.Sprintf(`(document.readyState === "complete" && %s?.innerText || "").replace(/[\u202f\u00a0]/g, " ")`, element)
	loaded := time.Now()
	process.Await(w.t, process.Patience/2, func() error {
		got, err := chromedp.Run(w, chromedp.Evaluate[string](script))
		if err != nil || strings.Contains(got, want) {
			return err
		}
		if w.followed && time.Since(loaded) > time.Second {
			w.browser.do(chromedp.Reload())
			loaded = time.Now()
		}
		return fmt.Errorf("%s: %q is not in\n%s", where, want, got)
	})
}
