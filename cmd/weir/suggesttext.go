package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/backtest"
)

// formatSuggestion renders a suggestion for people.
func formatSuggestion(s *backtest.Suggestion) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d lines, %s to %s\n", s.Lines, instantText(s.First), instantText(s.Last))
	formatTrouble(&out, &s.LogFacts)
	for _, text := range s.Notes {
		fmt.Fprintf(&out, "note     %s\n", text)
	}
	for i := range s.Rules {
		formatRuleSuggestion(&out, &s.Rules[i])
	}
	if len(s.Rules) == 0 {
		out.WriteString("\nno rule has a limit to replace\n")
	}
	return out.String()
}

func formatRuleSuggestion(out *strings.Builder, r *backtest.RuleSuggestion) {
	fmt.Fprintf(out, "\n%s/%s: %d keys, %d well-behaved, %d taken for machines\n", r.Domain, r.Rule, r.Keys, r.WellBehaved, r.MachineKeys)
	for _, l := range r.Limits {
		burst := ""
		if l.Burst > 0 {
			burst = fmt.Sprintf(", burst: %d", l.Burst)
		}
		fmt.Fprintf(out, "  {limit: %d, window: %s%s, algorithm: %s}\n", l.Limit, windowText(l.Window), burst, l.Algorithm)
	}
	for _, text := range r.Reasons() {
		fmt.Fprintf(out, "  - %s\n", text)
	}
	if len(r.Needs) > 0 {
		out.WriteString("\n")
		table := newTable(out, "WINDOW", "HALF NEED", "90%", "99%", "ALL")
		for _, n := range r.Needs {
			table.row(windowText(n.Window), n.Half, n.Most90, n.Most99, n.All)
		}
		table.flush()
	}
	formatBursts(out, r)
	formatMachines(out, r)
}

// formatBursts shows what bursts token buckets need.
func formatBursts(out *strings.Builder, r *backtest.RuleSuggestion) {
	for _, l := range r.Limits {
		bursts := l.Telling()
		if len(bursts) == 0 {
			continue
		}
		out.WriteString("\n")
		table := newTable(out, "RATE IN "+windowText(l.Window), "BURST NEEDED")
		for _, b := range bursts {
			table.row(b.Rate, b.Burst)
		}
		table.flush()
	}
}

// formatMachines lists the keys that are taken for machines.
func formatMachines(out *strings.Builder, r *backtest.RuleSuggestion) {
	const most = 5
	if len(r.Machines) == 0 {
		return
	}
	out.WriteString("\n")
	table := newTable(out, "LINES", "NEED", "MACHINE", "BY", "WHY")
	for _, m := range r.Machines[:min(most, len(r.Machines))] {
		signs := make([]string, 0, len(m.Signs))
		for _, s := range m.Signs {
			signs = append(signs, string(s))
		}
		table.row(m.Lines, m.Need, printable(m.Key), strings.Join(signs, ","), strings.Join(m.Reasons, "; "))
	}
	table.flush()
	if more := r.MachineKeys - most; more > 0 {
		fmt.Fprintf(out, "and %d more\n", more)
	}
}

func windowText(ns int64) string { return backtest.WindowText(time.Duration(ns)) }
