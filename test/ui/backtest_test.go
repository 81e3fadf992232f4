package uitest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/test/process"
)

const stricter = "domain: default\nrules:\n  - id: posts\n    when: {endpoint: \"/posts*\"}\n    per: [user]\n    limits: [{limit: 3, window: 1h}]\n"

// fill sets the value of a field.
func (b *browser) fill(selector, value string) {
	b.t.Helper()
	eval[bool](b, fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.value = %q; e.dispatchEvent(new Event("input", {bubbles: true})); return true })()`, selector, value))
}

// A stricter rule is tried on pasted lines and on a file, and nothing is in force of it.
func TestBacktest(t *testing.T) {
	t.Parallel()
	n := cluster(t, "a")[0]
	apply(t, n, "domain: default\nrules:\n  - id: posts\n    when: {endpoint: \"/posts*\"}\n    per: [user]\n    limits: [{limit: 10, window: 1h}]\n")
	var lines strings.Builder
	for i := range 200 {
		fmt.Fprintf(&lines, `{"time":%d,"user":"u%d","endpoint":"/posts/1"}`+"\n", 1_700_000_000+i*7, i%40*i%17)
	}
	b := open(t)
	b.visit("http://" + n.HTTP + "/ui/backtest?domain=default&id=posts")
	if text := eval[string](b, `document.querySelector("#rules").value`); !strings.Contains(text, "limit: 10") {
		t.Errorf("the form has %q", text)
	}
	b.accessible()
	b.fill("#rules", stricter)
	b.fill("#format", "json")
	b.fill("#paste", lines.String())
	b.do(chromedp.Click(chromedp.CSS("#replay")))
	b.await("#result", "Lines\n200")
	b.await("main", "Keys of posts")
	eval[bool](b, `document.querySelectorAll("details").forEach((d) => { d.open = true }), true`)
	b.await("main", "user=u0")
	b.accessible()
	b.picture("dashboard-backtest", "light", 1280)
	pasted := b.text("#result")
	b.visit("http://" + n.HTTP + "/ui/backtest")
	b.fill("#rules", stricter)
	b.fill("#format", "json")

	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write([]byte(lines.String())); err != nil || zip.Close() != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "log.gz")
	if err := os.WriteFile(file, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.SetUploadFiles(chromedp.CSS("#log"), []string{file}))
	b.do(chromedp.Click(chromedp.CSS("#replay")))
	b.await("#result", "Lines\n200")
	if uploaded := b.text("#result"); uploaded != pasted {
		t.Errorf("the file has\n%s\nand the paste\n%s", uploaded, pasted)
	}
	b.fill("#rules", "domain: default\nrules: [{id: posts, limits: [{limit: 3, window: 1 fortnight}]}]\n")
	b.fill("#paste", "{}")
	b.do(chromedp.Click(chromedp.CSS("#replay")))
	b.await("#problem", "window")
	b.accessible()
	if rules := weir(t, "", "rules", "export", "--node", n.GRPC); !strings.Contains(rules, "limit: 10") {
		t.Errorf("a backtest has changed the rules:\n%s", rules)
	}
}

// idle returns an error if a node replays a log.
func idle(n *process.Node) error {
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	err := errors.Join(parts.WriteField("format", "json"), parts.WriteField("paste", "{}"), parts.Close())
	if err != nil {
		return err
	}
	resp, err := http.Post("http://"+n.HTTP+"/ui/backtest", parts.FormDataContentType(), &form)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("a second log: %s", resp.Status)
	}
	return nil
}

// freeWithin is in what time a node is to have given up a replay, which would take it longer.
const freeWithin = 5 * time.Second

// A log that takes long is cancelled in the page, and the node replays another one then. One that is too large is not sent.
func TestBacktestIsCancelled(t *testing.T) {
	t.Parallel()
	n := cluster(t, "a")[0]
	apply(t, n, stricter)
	file := filepath.Join(t.TempDir(), "log.gz")
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	lines := bytes.Repeat([]byte(`{"time":1700000000,"user":"u","endpoint":"/posts/1"}`+"\n"), 2000)
	for range 2000 { // four million lines
		if _, err := zip.Write(lines); err != nil {
			t.Fatal(err)
		}
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Repeat(packed.Bytes(), 3), 0o600); err != nil { // which take the node ten seconds or more
		t.Fatal(err)
	}
	b := open(t)
	b.visit("http://" + n.HTTP + "/ui/backtest")
	b.fill("#format", "json")
	b.do(chromedp.SetUploadFiles(chromedp.CSS("#log"), []string{file}))
	// The browser answers no questions while it waits for the node. So the page itself cancels, when the node has most likely begun.
	said := eval[string](b, `document.querySelector("#replay").click(),
		setTimeout(() => { document.querySelector("#cancel").click(); window.cancelled = true; }, 2000),
		document.querySelector("#replaying").innerText`)
	if !strings.Contains(said, "replays the log") {
		t.Errorf("the page says %q", said)
	}
	process.Await(t, process.Patience/2, func() error {
		if !eval[bool](b, `window.cancelled === true`) {
			return errors.New("the page has not cancelled the replay")
		}
		return nil
	})
	b.await("#replaying", "Larger logs")
	process.Await(t, freeWithin, func() error { return idle(n) })
	process.Await(t, process.Patience/2, func() error {
		b.visit("http://" + n.HTTP + "/ui/backtest")
		b.fill("#format", "json")
		b.fill("#paste", `{"time":1700000000,"user":"a","endpoint":"/posts"}`)
		b.do(chromedp.Click(chromedp.CSS("#replay")))
		b.await("h1", "Backtest")
		if problem := b.text("#problem"); problem != "" {
			return fmt.Errorf("after a cancelled replay: %s", problem)
		}
		return nil
	})
	b.await("#result", "Lines\n1")
	if err := os.Truncate(file, 33<<20); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.SetUploadFiles(chromedp.CSS("#log"), []string{file}))
	b.do(chromedp.Click(chromedp.CSS("#replay")))
	b.await("#replaying", "too large")
}

// The editor tries a text on what the decision log has of the last hour, and the inspector shows the last decisions. A node without
// such a log says how to get one.
func TestDecisionLogInTheDashboard(t *testing.T) {
	t.Parallel()
	etcd := process.StartEtcd(t)
	log := filepath.Join(t.TempDir(), "decisions.log")
	logs := process.Start(t, "--id", "a", "--etcd", etcd.Endpoint, "--decision-log", log, "--decision-log-which", "all", "--decision-log-keys", "clear")
	other := process.Start(t, "--id", "b", "--etcd", etcd.Endpoint)
	process.AwaitMembers(t, process.Patience, logs, other)
	apply(t, logs, strings.Replace(stricter, "limit: 3", "limit: 8", 1))
	process.Await(t, process.Patience/2, func() error {
		if !strings.Contains(weir(t, "", "rules", "export", "--node", other.GRPC), "limit: 8") {
			return fmt.Errorf("the other node has no rule yet")
		}
		return nil
	})
	allowed := 0
	for range 12 {
		if check(t, logs) {
			allowed++
		}
	}
	if allowed != 8 {
		t.Fatalf("%d checks are allowed", allowed)
	}
	b := open(t)
	b.visit("http://" + logs.HTTP + "/ui/inspect?q=user%3Dalice+endpoint%3D%2Fposts")
	b.await("main", ", standby ")
	process.Await(t, process.Patience/2, func() error { // lines are written a moment later
		b.visit("http://" + logs.HTTP + "/ui/inspect?q=user%3Dalice+endpoint%3D%2Fposts")
		if rows := eval[int](b, `document.querySelectorAll("#decisions tbody tr").length`); rows != 12 {
			return fmt.Errorf("%d decisions", rows)
		}
		return nil
	})
	if denied := eval[int](b, `document.querySelectorAll("#decisions .badge.bad").length`); denied != 4 {
		t.Errorf("%d of the last decisions are denials", denied)
	}
	b.accessible()
	b.picture("dashboard-inspector", "light", 1280)
	b.visit("http://" + logs.HTTP + "/ui/edit-rule/default/posts")
	b.write(stricter)
	b.await("#verdict", "What changes")
	b.do(chromedp.Click(chromedp.CSS("#last-hour")))
	b.await("#result", "Lines\n12")
	b.await("#result", "Newly denied\n5")
	b.await("main", "Without b: keeps no decision log in a file.")
	b.visit("http://" + other.HTTP + "/ui/edit-rule/default/posts")
	b.do(chromedp.Click(chromedp.CSS("#last-hour")))
	b.await("#result", "Lines\n12")
	b.visit("http://" + other.HTTP + "/ui/inspect?q=user%3Dalice+endpoint%3D%2Fposts")
	b.await("#decisions", "keeps no decision log")

	b.visit("http://" + other.HTTP + "/ui/events") // of the other node's changes, too
	b.await("tbody", "Rules applied")
	b.accessible()
	logs.Kill()
	begun := time.Now()
	process.Await(t, process.Patience/2, func() error {
		b.visit("http://" + other.HTTP + "/ui/events")
		if text := b.text("main"); !strings.Contains(text, "Node unreachable") {
			return fmt.Errorf("after %v the page has %q", time.Since(begun), text)
		}
		return nil
	})
	b.visit("http://" + other.HTTP + "/ui/edit-rule/default/posts")
	b.do(chromedp.Click(chromedp.CSS("#last-hour")))
	b.await("#problem", "--decision-log-which all")
}
