package sizing

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// Examples that can be worked out by hand.
func TestFor(t *testing.T) {
	const tiny = 1000 // keys
	for _, tc := range []struct {
		name string
		load Load
		want Plan
	}{
		// 1e4 checks of 37.29 µs are 0.3729 processors of 3 x 2; of 26.38 µs 0.2638 of 2 x 2. A node may have 0.625 of 1000 keys, twice.
		{"a small one", Load{Checks: 1e4, Keys: tiny, Cores: 2}, Plan{
			Nodes: 3, Cores: 2, CoresUsed: 0.3729, CoresUsedBusy: 0.2675, Busy: 0.06215, BusyAfterLoss: 0.06595, Counters: 625, Copies: 625,
			CounterMemory: gib, Memory: 2048 * mib, Snapshot: 40125, Disk: 64 * mib, StartSeconds: 0.0002625, StopSeconds: 0.0000875, Enough: true,
		}},
		// All in batches: 1e6 checks of 2.60 µs are 2.6 processors of 12; of 2.15 µs 2.15 of 8.
		{"in batches", Load{Checks: 1e6, Keys: 1e8, Batched: 1, Cores: 4}, Plan{
			Nodes: 3, Cores: 4, CoresUsed: 2.6, CoresUsedBusy: 2.34, Busy: 2.6 / 12, BusyAfterLoss: 2.15 / 8, Counters: 62.5e6, Copies: 62.5e6,
			// 125e6 x 44.3 / 0.9 are 5867.7 MiB, in units of 64 MiB 5888; 1006 MiB more are 6894, so 6912.
			CounterMemory: 5888 * mib, Memory: 6912 * mib, Snapshot: 4012500000, Disk: 7680 * mib, StartSeconds: 26.25, StopSeconds: 8.75, Enough: true,
		}},
		// One node has no standby and none that takes over.
		{"one node", Load{Checks: 1e5, Keys: tiny, Cores: 1, Nodes: 1}, Plan{
			Nodes: 1, Cores: 1, CoresUsed: 1.464, CoresUsedBusy: 1.464, Busy: 1.464, Counters: 1000,
			CounterMemory: gib, Memory: 2048 * mib, Snapshot: 32100, Disk: 64 * mib, StartSeconds: 0.00021, StopSeconds: 0.00007,
		}},
		// Of two nodes one is left, which has all keys, and no copies. If many checks travel together, a hop takes (26.75-14.72) x 3/2 x 1/2.
		{"two nodes", Load{Checks: 1e5, Keys: tiny, Cores: 2, Nodes: 2}, Plan{
			Nodes: 2, Cores: 2, CoresUsed: 2.638, CoresUsedBusy: 2.37425, Busy: 0.6595, BusyAfterLoss: 0.732, Counters: 1000,
			CounterMemory: gib, Memory: 2048 * mib, Snapshot: 32100, Disk: 64 * mib, StartSeconds: 0.00021, StopSeconds: 0.00007, Enough: true,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := For(tc.load)
			if err != nil {
				t.Fatal(err)
			}
			if got.Etcd < 2*mib || got.Etcd > 3*mib {
				t.Errorf("etcd has %d bytes", got.Etcd)
			}
			got.Etcd = 0
			for name, x := range map[string][2]*float64{
				"cores": {&got.CoresUsed, &tc.want.CoresUsed}, "cores if busy": {&got.CoresUsedBusy, &tc.want.CoresUsedBusy},
				"busy": {&got.Busy, &tc.want.Busy}, "busy after loss": {&got.BusyAfterLoss, &tc.want.BusyAfterLoss},
				"start": {&got.StartSeconds, &tc.want.StartSeconds}, "stop": {&got.StopSeconds, &tc.want.StopSeconds},
			} {
				if math.Abs(*x[0]-*x[1]) > 1e-9 {
					t.Errorf("%s: %v, want %v", name, *x[0], *x[1])
				}
				*x[0] = *x[1]
			}
			if got != tc.want {
				t.Errorf("got\n%+v\nwant\n%+v", got, tc.want)
			}
		})
	}
}

// As few nodes as can do it: one less is not enough when one of them is gone.
func TestFewestNodes(t *testing.T) {
	for checks := 1e5; checks < 1e7; checks *= 1.7 {
		for _, batched := range []float64{0, 0.5, 1} {
			l := Load{Checks: checks, Keys: 1e6, Batched: batched, Cores: 64}
			p, err := For(l)
			if err != nil {
				t.Fatal(err)
			}
			if p.BusyAfterLoss > busyAfterLoss || p.CoresUsedBusy > p.CoresUsed {
				t.Errorf("%+v needs %+v", l, p)
			}
			if p.Nodes == leastNodes {
				continue
			}
			l.Nodes = p.Nodes - 1
			if less, err := For(l); err != nil || less.Enough {
				t.Errorf("%+v is enough, %v, and %d nodes are said to be the fewest", less, err, p.Nodes)
			}
		}
	}
}

func TestProblems(t *testing.T) {
	good := Load{Checks: 1, Keys: 1, Cores: 1}
	for want, change := range map[string]func(*Load){
		"checks: 0 is not between 1 and 1e+09":   func(l *Load) { l.Checks = 0 },
		"checks: NaN is not between 1 and 1e+09": func(l *Load) { l.Checks = math.NaN() },
		"keys: 1e+13 is not between 1 and 1e+12": func(l *Load) { l.Keys = 1e13 },
		"batch: 1.5 is not between 0 and 1":      func(l *Load) { l.Batched = 1.5 },
		"cores: 0 is not between 1 and 1024":     func(l *Load) { l.Cores = 0 },
		"nodes: 128 is not between 0 and 127":    func(l *Load) { l.Nodes = 128 },
		"checks: 1e+08 a second are too many":    func(l *Load) { l.Checks = 1e8 },
	} {
		l := good
		change(&l)
		if _, err := For(l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", l, err, want)
		}
	}
}

// Costs between those that were measured, and above, worked out by hand.
func TestCostsThatAreDerived(t *testing.T) {
	for _, tc := range []struct {
		nodes   int
		got     cost
		unary   float64
		batched float64
	}{
		{1, of(1), 14.64, 0.79},
		{5, of(5), (49.32 + 74.98) / 2, (3.05 + 3.99) / 2},
		{8, of(8), 101.3, 5.66},
		// A forwarded check adds (101.3-14.64) x 8/7 = 99.04 with 1.241 of them in a message, so a message of one adds 122.91. In
		// batches it adds (5.66-0.79) x 8/7 = 5.57 with 10.78, so a message costs 60; of a batch of 100 each of 20 nodes has 5.
		{20, of(20), 14.64 + 0.95*122.91, 0.79 + 0.95*60/5},
		// A batch of 100 has less than one check for each of 125 nodes, and a message has one at least.
		{125, of(125), 14.64 + 0.992*122.91, 0.79 + 0.992*60},
		{1, ofBusy(1), 14.72, 0.81},
		{3, ofBusy(3), 26.75, 2.34},
		// (26.75-14.72) x 3/2 x 19/20.
		{20, ofBusy(20), 14.72 + 17.14275, 0.81 + 2.18025},
	} {
		if math.Abs(tc.got.unary-tc.unary) > 0.01 || math.Abs(tc.got.batched-tc.batched) > 0.01 {
			t.Errorf("%d nodes: %.3f, want %.3f and %.3f", tc.nodes, tc.got, tc.unary, tc.batched)
		}
	}
}

// tolerance is how much a constant may differ from the result that it stands for, as results are measured again.
const tolerance = 0.1

// The constants are what docs/performance/results.json has.
func TestCostsAreAsMeasured(t *testing.T) {
	const file = "../../../../docs/performance/results.json"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var results struct {
		Parts map[string]struct {
			Values map[string]map[string][]float64 `json:"values"`
		} `json:"parts"`
	}
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatal(err)
	}
	same := func(constant float64, part, name, unit string) {
		t.Helper()
		values := slices.Sorted(slices.Values(results.Parts[part].Values[name][unit]))
		if len(values) == 0 {
			t.Errorf("%s has no %s of %s in part %s", file, unit, name, part)
			return
		}
		if median := values[len(values)/2]; math.Abs(constant-median) > tolerance*median {
			t.Errorf("%s of %s in part %s is %v in %s, and %v here: correct the constant, and docs/operations/sizing.md", unit, name, part, median, file, constant)
		}
	}
	for _, keys := range []string{"1000000", "10000000", "100000000"} {
		same(counterBytes, "engine", "engine/keys="+keys+"/batch=1", "rss_bytes_per_key")
	}
	const perCheck = "cpu-µs/check"
	for _, m := range measured {
		same(m.cost.unary, "nodes", fmt.Sprintf("BenchmarkNodes/nodes=%d/unary", m.nodes), perCheck)
		same(m.cost.batched, "nodes", fmt.Sprintf("BenchmarkNodes/nodes=%d/batch100", m.nodes), perCheck)
	}
	most := measured[len(measured)-1].nodes
	same(perMessage.unary, "nodes", fmt.Sprintf("BenchmarkNodes/nodes=%d/unary", most), "checks/message")
	same(perMessage.batched, "nodes", fmt.Sprintf("BenchmarkNodes/nodes=%d/batch100", most), "checks/message")
	same(oneBusy.unary, "wire", "BenchmarkCPUPerCheck/unary/one-node", perCheck)
	same(oneBusy.batched, "wire", "BenchmarkCPUPerCheck/batch100/one-node", perCheck)
	same(threeBusy.unary, "wire", "BenchmarkCPUPerCheck/unary/three-nodes/callers=192", perCheck)
	same(threeBusy.batched, "wire", "BenchmarkCPUPerCheck/batch100/three-nodes/callers=192", perCheck)
}

// Constants that are in no results stand on the pages.
func TestCostsOfPages(t *testing.T) {
	for file, wants := range map[string][]string{
		"docs/performance.md": {
			"10,000,000 counters", "321 MB, 32 bytes for each counter", fmt.Sprintf("| start with it | | %v s", startSeconds),
			fmt.Sprintf("| written when the node stops | | 0.5 to %v s", stopSeconds),
		},
		"deploy/helm/weir/values.yaml":  {"and 750 MiB for connections, garbage and moves of partitions"},
		"deploy/prometheus/alerts.yaml": {fmt.Sprintf("> %v", fullest)},
		"cluster/etcd/bounds.go":        {"MaxRules  = 1 << 20", "maxTokens = 1 << 20", "maxNodeValue   = 8 << 10"},
	} {
		text, err := os.ReadFile("../../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s does not say %q any more", file, want)
			}
		}
	}
}
