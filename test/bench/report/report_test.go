package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/bench/measure"
)

// TestPagesAreCurrent: what the repository shows is what the stored results say.
func TestPagesAreCurrent(t *testing.T) {
	root := copyDocs(t)
	s, err := loadStore(resultsIn(root))
	if err != nil {
		t.Fatal(err)
	}
	if err := render(root, s); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"docs/performance.md", "docs/performance/keys.svg", "docs/performance/nodes.svg"} {
		want, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join("../../..", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is out of date: go run ./test/bench/report -render (%v)", name, err)
		}
	}
}

// copyDocs copies the pages and the results to a directory that may be written to.
func copyDocs(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "docs", "performance"), os.DirFS("../../../docs/performance")); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"docs/performance.md"} {
		text, err := os.ReadFile(filepath.Join("../../..", page))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, page), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// everything returns results in which each target's value is as given, if it is a median.
func everything(value float64) *store {
	s := &store{Parts: make(map[string]*measured)}
	add := func(part, name, unit string, v float64) {
		if s.Parts[part] == nil {
			s.Parts[part] = &measured{When: "2026-01-02", Values: make(measure.Results)}
		}
		s.Parts[part].Values.Merge(measure.Results{name: {unit: {v}}})
	}
	for _, unit := range []string{"x-baseline", "x-baseline-tuned", cpuUnit} {
		for _, path := range pathOf {
			add("wire", wireBench+path+oneNode, unit, value)
		}
		add("hot", hotBench+"three-nodes", unit, value)
	}
	for _, n := range nodeCounts {
		add("nodes", "BenchmarkNodes/nodes="+string(rune('0'+n))+"/unary", cpuUnit, value)
	}
	for _, keys := range keyCounts {
		add("engine", engineName(keys, 1), "rss_bytes_per_key", value)
		add("engine", engineName(keys, 100), "cpu_ns_per_check", value)
	}
	for i, name := range append([]string{"weir"}, otherLibraries...) {
		add("libraries", library(name, "uniform", 1), "ns/op", 100*float64(i+1))
	}
	for i, name := range otherLibraries {
		add("turns", turns(1), "x-"+name, 2+float64(i))
	}
	add("turns", turns(1), "weir-cpu-ns", 100)
	add("turns", turns(2), "weir-cpu-ns", 125)
	return s
}

// TestTargets: what is within its target is met, what is not is not, and what was not
// measured is neither.
func TestTargets(t *testing.T) {
	good, bad, none := everything(0.5), everything(1e9), &store{}
	for _, targets := range [][]row{inMemory, onWire} {
		if got := none.targets(targets); strings.Count(got, "| not measured | - |") != len(targets) {
			t.Errorf("nothing measured:\n%s", got)
		}
	}
	for _, what := range []string{"memory per live key, 10 M", "unary, one node", "stream, 100", "flood of one denied key", "batch of 100, one node"} {
		for want, s := range map[string]*store{"yes": good, "no": bad} {
			line := lineOf(s.targets(append(inMemory[:len(inMemory):len(inMemory)], onWire...)), what)
			if !strings.Contains(line, "| "+want+" |") {
				t.Errorf("want %s: %s", want, line)
			}
		}
	}
	for what, want := range map[string]string{"a check of 1 M uniform keys, compared": "| 2.00x (100 ns of processor time", "two goroutines": "| 1.60x (100 ns of processor time"} {
		if line := lineOf(good.targets(inMemory), what); !strings.Contains(line, want) {
			t.Errorf("got %s, want %s", line, want)
		}
	}
	if line := lineOf(good.cores(), "unary, one node"); !strings.Contains(line, "| 0.50 µs | 5 |") {
		t.Errorf("cores: %s", line)
	}
	if line := lineOf(good.cost(), "unary, one node"); !strings.Contains(line, "| 0.50 µs | 0.5x |  | 5 |") {
		t.Errorf("cost: %s", line)
	}
	if line := lineOf(good.counters(), "**Weir**"); !strings.Contains(line, "| 100 ns | not measured |") {
		t.Errorf("counters: %s", line)
	}
}

func lineOf(table, what string) string {
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "| "+what) {
			return line
		}
	}
	return "no line of " + what
}

// TestPlots: every point is drawn, where its value is.
func TestPlots(t *testing.T) {
	for name, svg := range plots(everything(1)) {
		for r := xml.NewDecoder(bytes.NewReader(svg)); ; {
			if _, err := r.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		_, points, _ := strings.Cut(string(svg), `<polyline class="first" points="`)
		points, _, _ = strings.Cut(points, `"`)
		if n, want := len(strings.Fields(points)), map[string]int{"nodes.svg": len(nodeCounts), "keys.svg": len(keyCounts)}[name]; n != want {
			t.Errorf("%s: %d points, want %d", name, n, want)
		}
	}
	a := axis{least: 1, most: 100, log: true}
	for v, want := range map[float64]float64{0.1: 0, 1: 0, 10: 0.5, 100: 1, 1000: 1} {
		if got := a.place(v); got != want {
			t.Errorf("%v is at %v, want %v", v, got, want)
		}
	}
}

// TestStore: stored results are read again, and a part that is measured again replaces its results.
func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "performance", "results.json")
	s, err := loadStore(path)
	if err != nil {
		t.Fatal(err)
	}
	st := weir("n", "bench engine")
	m := newMeasured("abc", true)
	m.Seconds = 7
	m.keep(st, measure.Results{"n": {"ns": {1, 2.5}}})
	m.keep(st, measure.Results{"n": {"ns": {3}}})
	s.Parts["engine"] = m
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	again, err := loadStore(path)
	if err != nil || !reflect.DeepEqual(again, s) {
		t.Fatalf("got %+v, %v", again, err)
	}
	if got := again.part("engine")["n"]["ns"]; !reflect.DeepEqual(got, []float64{1, 2.5, 3}) {
		t.Errorf("got %v", got)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `"ns": [1,2.5,3]`) {
		t.Errorf("stored %s, %v", text, err)
	}
	for want, m := range map[bool]measurement{
		true:  {store: again, commit: "abc", short: true},
		false: {store: again, commit: "abc"},
	} {
		if m.has(part{name: "engine"}) != want || m.has(part{name: "wire"}) {
			t.Errorf("%+v: want %v", m, want)
		}
	}
	if line := lineOf(again.commands(), "`engine`"); !strings.Contains(line, "at abc, short, 7 s") || !strings.Contains(line, "`weir bench engine`") {
		t.Errorf("commands: %s", line)
	}
}

// TestFailedPart: what fails, or takes too long, keeps its old results, and the parts after
// it are measured; those that have results of the same commit need not be.
//
// The test takes more than 10 s of real time if nothing is cached: it builds weir and runs it for each step, as the command
// does. The benchmark of one step runs for a minute unless it is ended after 300 ms, which the test shows.
func TestFailedPart(t *testing.T) {
	s := &store{path: filepath.Join(t.TempDir(), "results.json"), Parts: map[string]*measured{"bad": {Commit: "old"}, "late": {Commit: "old"}, "same": {Commit: "new"}}}
	root := copyDocs(t)
	t.Chdir("../../..") // as the commands are for the root of the module
	if err := os.Remove(resultsIn(root)); err != nil {
		t.Fatal(err)
	}
	quick := weir("quick", "bench engine --keys 10 --duration 1ms")
	err := measurement{store: s, root: root, commit: "new", resume: true}.run(t.Context(), []part{
		{"bad", time.Minute, []step{quick, weir("x", "bench engine --keys 0")}},
		{"late", 300 * time.Millisecond, []step{weir("x", "bench engine --keys 10 --duration 1m")}},
		{"same", time.Minute, []step{weir("x", "bench engine --keys 0")}},
		{"good", time.Minute, []step{quick, quick}},
	})
	if err == nil || !strings.Contains(err.Error(), "bad: weir bench engine --keys 0") || !strings.Contains(err.Error(), "late: ") || strings.Contains(err.Error(), "same: ") {
		t.Errorf("got %v", err)
	}
	stored, err := loadStore(s.path)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"bad": "old", "late": "old", "same": "new", "good": "new"} {
		if m := stored.Parts[name]; m == nil || m.Commit != want {
			t.Errorf("%s: got %+v, want %s", name, m, want)
		}
	}
	if n := len(stored.part("good")["quick"]["keys"]); n != 2 {
		t.Errorf("%d values", n)
	}
}

func TestChoose(t *testing.T) {
	for _, tc := range []struct {
		options
		want int
		err  string
	}{
		{options{}, len(parts(false)), ""},
		{options{short: true}, len(parts(true)), ""},
		{options{render: true}, 0, ""},
		{options{only: "wire,few", resume: true}, 2, ""},
		{options{only: "wire", render: true}, 0, "leave it or them out"},
		{options{short: true, render: true}, 0, "leave it or them out"},
		{options{only: "wires"}, 0, `-part: "wires" is not one of engine, `},
	} {
		got, err := tc.choose()
		if len(got) != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%+v: %d parts, %v", tc, len(got), err)
		}
	}
	// Each target and path is measured by a part that there is.
	for _, targets := range [][]row{inMemory, onWire} {
		for _, row := range targets {
			if _, err := (options{only: row.part}).choose(); err != nil {
				t.Errorf("%s: %v", row.what, err)
			}
		}
	}
}

// TestSteps: a command is written so that a shell takes it as it was.
func TestSteps(t *testing.T) {
	for want, s := range map[string]step{
		"weir bench engine --keys 5": weir("x", "bench engine --keys 5"),
		"go test -run '^$' -cpu 2 ./shard -bench '^BenchmarkCheck$' -benchtime 1s # 3 times": gotest("./shard", "^BenchmarkCheck$", "1s", 3),
		"cd a/b && go test -run '^$' -cpu 1,2 -bench .":                                      {dir: "a/b", cpus: []int{1, 2}, args: []string{"-bench", "."}},
	} {
		if got := s.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
