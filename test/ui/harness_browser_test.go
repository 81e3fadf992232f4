package uitest

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// browser is a tab of a headless Chromium.
type browser struct {
	context.Context
	t        *testing.T
	pictures int // of pages that were checked
}

// open starts a browser, which ends with the test. The test is skipped without a Chromium, unless all must run.
func open(t *testing.T) *browser {
	t.Helper()
	program := os.Getenv("CHROMIUM")
	if program == "" {
		program, _ = exec.LookPath("chromium")
	}
	if program == "" {
		if testform.AllTests() {
			t.Fatal("no chromium: set CHROMIUM")
		}
		t.Skip("no chromium: set CHROMIUM")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()),
		chromedp.IgnoreCertErrors, chromedp.WindowSize(1280, 900), chromedp.Flag("hide-scrollbars", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	tab, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	if err := chromedp.Do(tab); err != nil { // starts it
		t.Fatal(err)
	}
	tab, cancel = context.WithTimeout(tab, 3*process.Patience)
	t.Cleanup(cancel)
	b := &browser{Context: tab, t: t}
	said := make(chan string, 100)
	err := chromedp.Listen(tab, func(event any) {
		text := ""
		switch e := event.(type) {
		case *cdpruntime.EventExceptionThrown:
			text = fmt.Sprintf("%s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
		case *page.EventJavascriptDialogOpening:
			text = "a dialog: " + e.Message
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, "http://127.") && !strings.HasPrefix(u, "https://127.") && !strings.HasPrefix(u, "data:") {
				text = "a request for " + u
			}
		case *cdpruntime.EventConsoleAPICalled:
			if e.Type == "error" {
				text = fmt.Sprintf("console: %+v", e.Args)
			}
		}
		if text != "" {
			select {
			case said <- text:
			default:
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for len(said) > 0 {
			t.Errorf("the page: %s", <-said)
		}
	})
	call(b, network.Enable, network.EnableParams{})
	return b
}

// call sends a command to the browser.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	answer, err := chromedp.Call(b, command, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer
}

// eval returns what a script comes to.
func eval[T any](b *browser, script string) T {
	b.t.Helper()
	v, err := chromedp.Run(b, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.100s: %v", script, err)
	}
	return v
}

// do runs actions.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// visit opens a page, and waits for its main part.
func (b *browser) visit(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url), chromedp.WaitReady(chromedp.CSS("body")))
}

// text returns what an element shows.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("(document.querySelector(%q) || {innerText: ''}).innerText", selector))
}

// await waits until an element of a page that has all its parts shows a text. What a form answers is shown from its first bytes on. A
// page that is being left answers nothing.
func (b *browser) await(selector, want string) {
	b.t.Helper()
	script := fmt.Sprintf("document.readyState === 'complete' ? (document.querySelector(%q) || {innerText: ''}).innerText : ''", selector)
	process.Await(b.t, process.Patience/2, func() error {
		got, err := chromedp.Run(b, chromedp.Evaluate[string](script))
		if err == nil && !strings.Contains(got, want) {
			err = fmt.Errorf("%s shows %q, and not %q", selector, got, want)
		}
		return err
	})
}

// accessible fails for each violation that axe finds on the page, light and wide, dark and narrow. Colours and widths have nothing to do
// with each other, so two of the four do.
func (b *browser) accessible() {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](axe))
	for scheme, width := range map[string]int64{"light": 1280, "dark": 360} {
		b.look(scheme, width, 900)
		found := eval[string](b, `axe.run({resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations.map((v) => [v.id, v.help, v.nodes.map((n) => n.html + " " + n.failureSummary)])))`)
		wider := eval[string](b, `document.documentElement.scrollWidth > innerWidth ? document.documentElement.scrollWidth + " px" : ""`)
		b.lookedAt(fmt.Sprintf("%s-%d", scheme, width))
		if found != "[]" {
			b.t.Errorf("%s, %d px: %s", scheme, width, found)
		}
		if wider != "" {
			b.t.Errorf("%s, %d px: the page is %s wide", scheme, width, wider)
		}
	}
	b.look("light", 1280, 900)
}

// lookedAt writes a picture of the page to the directory of looks, if there is one.
func (b *browser) lookedAt(how string) {
	b.t.Helper()
	if *looks == "" {
		return
	}
	shot, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	b.pictures++
	if err := os.WriteFile(filepath.Join(*looks, fmt.Sprintf("%s-%02d-%s.png", b.t.Name(), b.pictures, how)), shot, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// look sets the size and the colours of the page.
func (b *browser) look(scheme string, width, height int64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// picture writes a screenshot of the whole page for the docs, if these are to be written.
func (b *browser) picture(name, scheme string, width int64) {
	b.t.Helper()
	if !*screenshots {
		return
	}
	b.look(scheme, width, 700)
	shot, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.t.Fatal(err)
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, quantized(img)); err != nil {
		b.t.Fatal(err)
	}
	dir := filepath.Join("..", "..", "docs", "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), small.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.look("light", 1280, 900)
}

// cluster starts nodes of those ids, and returns them once they are members.
func cluster(t *testing.T, ids ...string) []*process.Node {
	t.Helper()
	etcd := process.StartEtcd(t)
	var nodes []*process.Node
	for _, id := range ids {
		nodes = append(nodes, process.Start(t, "--id", id, "--etcd", etcd.Endpoint))
	}
	process.AwaitMembers(t, process.Patience, nodes...)
	return nodes
}

// weir runs a command, and returns what it prints.
func weir(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), process.Binary(t), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("weir %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// apply puts rules in force at a node.
func apply(t *testing.T, n *process.Node, rules string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	weir(t, "", "rules", "apply", "-f", file, "--node", n.GRPC)
}

// paint returns how long the browser took to paint the page first.
func (b *browser) paint() time.Duration {
	b.t.Helper()
	var ms float64
	process.Await(b.t, process.Patience/2, func() error {
		if ms = eval[float64](b, `performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1`); ms < 0 {
			return errors.New("the page was not painted")
		}
		return nil
	})
	return time.Duration(ms * float64(time.Millisecond))
}
