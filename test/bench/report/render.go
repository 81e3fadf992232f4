package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirlimit/weir/test/bench/measure"
	"github.com/weirlimit/weir/test/docs"
)

// blocks are what is written between the markers of the page, by their names.
var blocks = []struct {
	name  string
	write func(*store) string
}{
	{"in memory", func(s *store) string { return s.targets(inMemory) }},
	{"on the wire", func(s *store) string { return s.targets(onWire) }},
	{"cores", (*store).cores},
	{"all paths", (*store).allPaths},
	{"keys", (*store).keys},
	{"libraries", (*store).libraries},
	{"within a check", (*store).within},
	{"commands", (*store).commands},
}

// render writes the tables into the page, and the plots beside it.
func render(dir string, s *store) error {
	page := filepath.Join(dir, "performance.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		if text, err = docs.Replace(text, command+": "+b.name, []byte("\n"+b.write(s)+"\n")); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
	}
	for name, plot := range plots(s) {
		if err := os.WriteFile(filepath.Join(dir, "performance", name), plot, 0o644); err != nil {
			return err
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
		micros, ok := s.part(p.part).Median(p.name, cpuUnit)
		rows = append(rows, []string{p.what, cell("%.2f µs", micros, ok), cell("%.0f", micros*enough/1e6, ok), "`" + p.part + "`"})
	}
	return table([]string{"path", "all servers, per check", "cores for 10 M checks/s", "part"}, rows)
}

func (s *store) allPaths() string {
	r := s.part("wire")
	var rows [][]string
	for _, name := range sortedNames(r) {
		micros, ok := r.Median(name, cpuUnit)
		rate, also := r.Median(name, "checks/s")
		floor, hasFloor := r.Median(name, "x-floor")
		one, hasOne := r.Median(name, "x-one-node")
		row := []string{strings.TrimPrefix(name, wireBench), cell("%.2f µs", micros, ok), cell("%.0f", rate, also), cell("%.2f", floor, hasFloor), cell("%.2f", one, hasOne)}
		for i := range row {
			if row[i] == notMeasured {
				row[i] = ""
			}
		}
		rows = append(rows, row)
	}
	return table([]string{"path", "all servers, per check", "checks/s", "x floor", "x one node"}, rows)
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
		single, alone := r.Median(engineName(n, 1), "ns_per_check")
		batch, together := r.Median(engineName(n, 100), "ns_per_check")
		rows = append(rows, []string{thousands(n), cell("%.1f B", bytes, ok), cell("%.0f ns", single, alone), cell("%.0f ns", batch, together)})
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

func (s *store) commands() string {
	var rows [][]string
	for _, p := range parts {
		when, where := notMeasured, ""
		if m := s.Parts[p.name]; m != nil {
			when, where = m.When, fmt.Sprintf("%d cores of %s, %s, %s", m.Machine.Cores, m.Machine.CPU, m.Machine.OS, m.Machine.Go)
		}
		var commands []string
		for _, st := range p.steps {
			text := "`" + strings.ReplaceAll(st.String(), "|", "\\|") + "`"
			if st.rounds > 1 {
				text += fmt.Sprintf(", %d times", st.rounds)
			}
			commands = append(commands, text)
		}
		rows = append(rows, []string{"`" + p.name + "`", strings.Join(commands, "<br>"), when, where})
	}
	return table([]string{"part", "commands", "measured", "on"}, rows)
}
