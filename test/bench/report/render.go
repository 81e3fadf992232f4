package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirlimit/weir/test/bench/measure"
	"github.com/weirlimit/weir/test/docs/docwriter"
)

// block is a part of a page that is written.
type block struct {
	name  string
	write func(*store) string
}

// blocks are what is written between the markers of the page, by their names.
var blocks = []block{
	{"in memory", func(s *store) string { return s.targets(inMemory) }},
	{"on the wire", func(s *store) string { return s.targets(onWire) }},
	{"cores", (*store).cores},
	{"all paths", (*store).allPaths},
	{"keys", (*store).keys},
	{"libraries", (*store).libraries},
	{"nodes", (*store).nodes},
	{"clients", (*store).clients},
	{"profile", (*store).profile},
	{"within a check", (*store).within},
	{"commands", (*store).commands},
	{"cost", (*store).cost},
	{"counters", (*store).counters},
}

// resultsIn is the file of the results below a root.
func resultsIn(root string) string { return filepath.Join(root, "docs", "performance", "results.json") }

// render writes the tables into the page, and the plots into files next to it.
func render(root string, s *store) error {
	dir := filepath.Join(root, "docs")
	if err := s.fill(filepath.Join(dir, "performance.md"), blocks); err != nil {
		return err
	}
	for name, plot := range plots(s) {
		if err := os.WriteFile(filepath.Join(dir, "performance", name), plot, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fill writes blocks into a page.
func (s *store) fill(page string, blocks []block) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		if text, err = docwriter.Replace(text, command+": "+b.name, []byte("\n"+b.write(s)+"\n")); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
	}
	return os.WriteFile(page, text, 0o644)
}

// part returns the results of a part, none if it was not measured.
func (s *store) part(name string) measure.Results {
	if m := s.Parts[name]; m != nil {
		return m.Values
	}
	return nil
}

const notMeasured = "not measured"

// cell shows a value, or that there is none.
func cell(format string, value float64, ok bool) string {
	if !ok {
		return notMeasured
	}
	return fmt.Sprintf(format, value)
}

// table lines up the cells of a Markdown table.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r, " | "))
	}
	return b.String()
}

func (s *store) targets(targets []row) string {
	var rows [][]string
	for _, t := range targets {
		results := s.part(t.part)
		value, ok := t.value(results)
		shown, met := cell(t.format, value, ok), "-"
		if ok {
			if met = "no"; t.met(value) {
				met = "yes"
			}
			if t.note != nil {
				shown += " (" + t.note(results) + ")"
			}
		}
		rows = append(rows, []string{t.what, t.target, shown, met, "`" + t.part + "`"})
	}
	return table([]string{"what", "target", "measured", "met", "part"}, rows)
}

// enough is the load that cores tells about.
const enough = 10e6 // checks per second

func (s *store) cores() string {
	var rows [][]string
	for _, p := range paths {
		micros, ok := s.part(p.part).Median(p.name, p.unit)
		rows = append(rows, []string{p.what, cell("%.2f µs", micros, ok), cell("%.0f", micros*enough/1e6, ok), "`" + p.part + "`"})
	}
	return table([]string{"path", "all servers, per check", "cores for 10 M checks/s", "part"}, rows)
}

// cost is what a check costs, by path.
func (s *store) cost() string {
	var rows [][]string
	for _, p := range paths {
		r := s.part(p.part)
		micros, ok := r.Median(p.name, p.unit)
		baseline, hasBaseline := r.Median(p.name, "x-baseline")
		one, hasOne := r.Median(p.name, "x-one-node")
		rows = append(rows, []string{p.what, cell("%.2f µs", micros, ok), orNothing("%.1fx", baseline, hasBaseline), orNothing("%.1fx", one, hasOne), cell("%.3g", micros*enough/1e6, ok)})
	}
	return table([]string{"path", "a check, all servers", "x bare gRPC server", "x one node", "cores for 10 M checks/s"}, rows)
}

// counters compares the cost of a check in one goroutine with other libraries.
func (s *store) counters() string {
	var rows [][]string
	add := func(name string, ns func(pattern string) (float64, bool), bytes float64, ok bool) {
		row := []string{name}
		for _, pattern := range []string{"uniform", "zipf", "hot"} {
			v, ok := ns(pattern)
			row = append(row, cell("%.0f ns", v, ok))
		}
		rows = append(rows, append(row, orNothing("%.0f B", bytes, ok)))
	}
	r := s.part("libraries")
	of := func(name string) {
		bytes, ok := r.Median(library(name, "uniform", 1), "rss-B/key")
		add(names[name], func(pattern string) (float64, bool) { return r.Median(library(name, pattern, 1), "ns/op") }, bytes, ok)
	}
	of("weir")
	of("weir-batch100")
	add("256 maps behind mutexes", func(pattern string) (float64, bool) {
		return s.part("map").Median("BenchmarkCheck/maps/"+pattern+"@1", "ns/op")
	}, 0, false)
	for _, name := range otherLibraries {
		of(name)
	}
	return table([]string{"limiter in process", "uniform", "zipf 1.1", "one hot key, denied", "memory per key"}, rows)
}

// names of what test/bench/peers measures, for people.
var names = map[string]string{
	"weir": "**Weir**", "weir-batch100": "**Weir, 100 at once**",
	"x-time-rate": "x/time/rate in a map", "go-limiter": "sethvargo/go-limiter", "throttled": "throttled/throttled", "ulule": "ulule/limiter",
}

func (s *store) allPaths() string {
	r := s.part("wire")
	var rows [][]string
	for _, name := range sortedNames(r) {
		micros, ok := r.Median(name, cpuUnit)
		rate, also := r.Median(name, "checks/s")
		baseline, hasBaseline := r.Median(name, "x-baseline")
		one, hasOne := r.Median(name, "x-one-node")
		row := []string{strings.TrimPrefix(name, wireBench), cell("%.2f µs", micros, ok), cell("%.0f", rate, also), cell("%.2f", baseline, hasBaseline), cell("%.2f", one, hasOne)}
		for i := range row {
			if row[i] == notMeasured {
				row[i] = ""
			}
		}
		rows = append(rows, row)
	}
	return table([]string{"path", "all servers, per check", "checks/s", "x baseline", "x one node"}, rows)
}

// within lists what a check in one process is made of, and what it is compared with.
func (s *store) within() string {
	var rows [][]string
	for _, part := range []string{"map", "within"} {
		r := s.part(part)
		for _, name := range sortedNames(r) {
			ns, ok := r.Median(name, "ns/op")
			allocs, also := r.Median(name, "allocs/op")
			rows = append(rows, []string{"`" + strings.TrimPrefix(name, "Benchmark") + "`", cell("%.0f ns", ns, ok), cell("%.0f", allocs, also), "`" + part + "`"})
		}
	}
	return table([]string{"benchmark", "time", "allocations", "part"}, rows)
}

// sortedNames are the names in the order of the alphabet.
func sortedNames(r measure.Results) (names []string) {
	for name := range r {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *store) keys() string {
	r := s.part("engine")
	var rows [][]string
	for _, n := range keyCounts {
		bytes, ok := r.Median(engineName(n, 1), "rss_bytes_per_key")
		row := []string{thousands(n), cell("%.1f B", bytes, ok)}
		for _, batch := range []int{1, 100} {
			cpu, ok := r.Median(engineName(n, batch), "cpu_ns_per_check")
			wall, _ := r.Median(engineName(n, batch), "ns_per_check")
			text := cell("%.0f ns", cpu, ok)
			if ok {
				text += fmt.Sprintf(" (%.0f)", wall)
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	return table([]string{"keys", "memory per key", "a check", "a check in batches of 100"}, rows)
}

// thousands writes 10 k for 10000.
func thousands(n int) string {
	if n >= 1_000_000 {
		return fmt.Sprintf("%d M", n/1_000_000)
	}
	return fmt.Sprintf("%d k", n/1000)
}

// nodes is what a check costs clusters of each size.
func (s *store) nodes() string {
	r := s.part("nodes")
	var rows [][]string
	for _, n := range nodeCounts {
		row := []string{fmt.Sprint(n)}
		for _, path := range []string{"unary", "batch100"} {
			name := nodesName(n, path)
			micros, ok := r.Median(name, cpuUnit)
			ratio, also := r.Median(name, "x-one-node")
			batching, carries := r.Median(name, "checks/message")
			row = append(row, cell("%.2f µs", micros, ok), cell("%.2f", ratio, also), orNothing("%.1f", batching, carries))
		}
		rows = append(rows, row)
	}
	return table([]string{"nodes", "unary", "x one node", "checks per message between nodes", "batch of 100", "x one node", "checks per message between nodes"}, rows)
}

// clients compares calls with the Go client.
func (s *store) clients() string {
	r := s.part("client")
	var rows [][]string
	add := func(what, name string) {
		server, ok := r.Median(name, "server-cpu-µs/check")
		client, also := r.Median(name, "client-cpu-µs/check")
		rate, too := r.Median(name, "checks/s")
		rows = append(rows, []string{what, cell("%.2f µs", server, ok), cell("%.2f µs", client, also), cell("%.0f", rate, too)})
	}
	for _, nodes := range []string{"one", "three"} {
		for _, kind := range []struct{ name, what string }{{"calls", "a call per check"}, {"client", "the client"}} {
			for _, callers := range []struct{ name, what string }{{"alone", "one caller"}, {"callers", "64 callers"}} {
				what := fmt.Sprintf("%s, %s, nodes: %s", kind.what, callers.what, nodes)
				add(what, fmt.Sprintf("BenchmarkClient/%s-%s/%s/%s", nodes, map[string]string{"one": "node", "three": "nodes"}[nodes], kind.name, callers.name))
			}
		}
	}
	add("the client with leases, 100 hot keys, nodes: three", leasesBench)
	return table([]string{"how the client asks", "servers, per check", "client, per check", "checks/s"}, rows)
}

// profileGroups are the groups of functions of BenchmarkProfile, and what they are.
var profileGroups = []struct{ name, what string }{
	{"syscalls", "system calls and the clock"},
	{"gRPC", "gRPC and HTTP/2"},
	{"protobuf", "protobuf"},
	{"scheduler", "goroutines, locks, channels"},
	{"memory", "allocation and garbage collection"},
	{"api", "`api`: decoding, encoding, what a request is"},
	{"rules", "`rules`"},
	{"cluster", "`cluster`: routing, conns, copies"},
	{"counters", "`shard`, `algorithms`, `ring`: the counters"},
	{"others", "the rest of Go, metrics"},
}

// profile is where the time of a check goes.
func (s *store) profile() string {
	r := s.part("profile")
	head := []string{"µs per check, all servers"}
	var names []string
	for _, path := range []string{"unary", "batch100", "stream100"} {
		for _, n := range []int{1, 3} {
			head = append(head, fmt.Sprintf("%s, %d", path, n))
			names = append(names, fmt.Sprintf("BenchmarkProfile/%s/nodes=%d", path, n))
		}
	}
	line := func(what, unit string) []string {
		row := []string{what}
		for _, name := range names {
			micros, ok := r.Median(name, unit)
			row = append(row, orNothing("%.2f", micros, ok))
		}
		return row
	}
	rows := [][]string{line("all", cpuUnit)}
	for _, g := range profileGroups {
		rows = append(rows, line(g.what, g.name+"-µs"))
	}
	rows = append(rows, line("of all that: copies for standbys", "copies-µs"))
	return table(head, rows)
}

// orNothing is cell for what need not be there.
func orNothing(format string, value float64, ok bool) string {
	if !ok {
		return ""
	}
	return fmt.Sprintf(format, value)
}

func (s *store) libraries() string {
	r := s.part("libraries")
	var rows [][]string
	for _, name := range append([]string{"weir", "weir-batch100"}, otherLibraries...) {
		row := []string{name}
		for _, pattern := range []string{"uniform", "zipf", "hot"} {
			one, ok := r.Median(library(name, pattern, 1), "ns/op")
			two, also := r.Median(library(name, pattern, 2), "ns/op")
			row = append(row, cell("%.0f", one, ok)+" -> "+cell("%.0f", two, also))
		}
		allocs, ok := r.Median(library(name, "uniform", 1), "allocs/op")
		bytes, also := r.Median(library(name, "uniform", 1), "rss-B/key")
		rows = append(rows, append(row, cell("%.0f", allocs, ok), cell("%.0f", bytes, also)))
	}
	return table([]string{"library", "uniform", "zipf 1.1", "hot, denied", "allocations", "memory per key, B"}, rows)
}

// commands says how each part was measured, or would be.
func (s *store) commands() string {
	var rows [][]string
	for _, p := range parts(false) {
		var commands []string
		for _, st := range p.steps {
			commands = append(commands, st.String())
		}
		when, where := notMeasured, ""
		if m := s.Parts[p.name]; m != nil {
			commands, when = slices.Clone(m.Commands), m.When
			when += " at " + cmp.Or(m.Commit, "an earlier commit")
			if m.Short {
				when += ", short"
			}
			if m.Seconds > 0 {
				when += fmt.Sprintf(", %d s", m.Seconds)
			}
			where = fmt.Sprintf("%d cores of %s, %s, %s", m.Machine.Cores, m.Machine.CPU, m.Machine.OS, m.Machine.Go)
		}
		for i, c := range commands {
			commands[i] = "`" + strings.ReplaceAll(c, "|", "\\|") + "`"
		}
		rows = append(rows, []string{"`" + p.name + "`", strings.Join(commands, "<br>"), when, where})
	}
	return table([]string{"part", "commands", "measured", "on"}, rows)
}
