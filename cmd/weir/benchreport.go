package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/cmd/weir/internal/bench"
)

// progress returns the progress report of a run, or nil if none is wanted.
func (a *app) progress(wanted bool, what string) func(bench.Progress) {
	if !a.wantProgress(wanted) {
		return nil
	}
	var last bench.Progress
	return func(p bench.Progress) {
		rate := float64(p.Checks-last.Checks) / (p.Elapsed - last.Elapsed).Seconds()
		a.tell(p.Elapsed, fmt.Sprintf("%s%.0f checks/s, %d denied, %d errors", what, rate, p.Denied, p.Errors))
		last = p
	}
}

// wantProgress reports whether progress should be shown.
func (a *app) wantProgress(wanted bool) bool { return wanted || isTerminal(a.stderr) }

// teller returns the function that shows progress, or nil if none is wanted.
func (a *app) teller(wanted bool) bench.Tell {
	if !a.wantProgress(wanted) {
		return nil
	}
	started := time.Now()
	return func(text string) { a.tell(time.Since(started), text) }
}

func (a *app) tell(elapsed time.Duration, text string) {
	fmt.Fprintf(a.stderr, "%4.0fs  %s\n", elapsed.Seconds(), text)
}

// printReport writes the text for a person or the report for a program.
func (a *app) printReport(asJSON bool, report any, text string) error {
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(report)
	}
	_, err := fmt.Fprint(a.stdout, text)
	return err
}

func formatReport(r bench.Report) string {
	var out strings.Builder
	call := r.Mode
	if r.Batch > 0 {
		call = fmt.Sprintf("%s of %d", r.Mode, r.Batch)
	}
	if r.Window > 0 {
		call += fmt.Sprintf(", %d under way per stream", r.Window)
	}
	loop := "closed loop"
	if r.Rate > 0 {
		loop = fmt.Sprintf("open loop of %d checks/s", r.Rate)
	}
	if r.Via != "" {
		call += " via " + r.Via
	}
	fmt.Fprintf(&out, "%s, %s, %d callers, %d connections, %d keys (%s), %.1fs\n\n",
		loop, call, r.Callers, r.Connections, r.Keys, r.Distribution, r.Seconds)
	table := newTable(&out, "CHECKS", "ALLOWED", "DENIED", "FAIL_OPEN", "ERRORS", "CHECKS/S")
	table.row(r.Checks, r.Allowed, r.Denied, r.FailOpen, r.Errors, fmt.Sprintf("%.0f", r.ChecksPerSecond))
	table.flush()
	out.WriteString("\n")
	table = newTable(&out, "TIME", "P50", "P90", "P99", "P99.9", "MAX")
	latency := "latency of a call"
	if r.Timed > 0 {
		latency += fmt.Sprintf(" (1 of %d)", r.Timed)
	}
	writePercentiles(table, latency, r.Latency)
	if r.SendDelay != nil {
		writePercentiles(table, "of it, before it was sent", *r.SendDelay)
	}
	table.flush()
	out.WriteString("\n")
	table = newTable(&out, "PROCESS", "CPU/CHECK", "MEMORY", "GROWN BY")
	table.row("client", fmt.Sprintf("%.2fµs", r.ClientCPU), "-", "-")
	for _, s := range r.Servers {
		table.row(append([]any{s.PID}, usageCells(s)...)...)
	}
	writeBaseline(&out, table, r)
	writeTrouble(&out, r)
	return out.String()
}

func usageCells(u bench.Usage) []any {
	if u.Gone {
		return []any{"has ended", "-", "-"}
	}
	return []any{fmt.Sprintf("%.2fµs", u.CPU), formatMiB(u.RSS), formatMiB(u.Grown)}
}

func formatMiB(bytes int64) string { return fmt.Sprintf("%.1fMiB", float64(bytes)/(1<<20)) }

// writeBaseline ends the table of processes with the bare server, and compares.
func writeBaseline(out *strings.Builder, t table, r bench.Report) {
	if r.Baseline != nil {
		for _, s := range r.Baseline.Servers {
			t.row(append([]any{"baseline"}, usageCells(s)...)...)
		}
	}
	t.flush()
	if r.KeysAsked > 0 {
		fmt.Fprintf(out, "\nmemory: the servers have grown by %.1fB per key, of %d that were asked about\n", r.Bytes, r.KeysAsked)
	}
	if r.Client != nil {
		writeClient(out, r)
	}
	if r.Baseline == nil {
		return
	}
	fmt.Fprintf(out, "\nbaseline: %.0f checks/s, p50 %s, p99 %s", r.Baseline.ChecksPerSecond, formatMicros(r.Baseline.Latency.P50), formatMicros(r.Baseline.Latency.P99))
	if r.XBaseline > 0 {
		fmt.Fprintf(out, "; a check costs the servers %.2f times the baseline", r.XBaseline)
	}
	out.WriteString("\n")
}

// writeClient says what the client that all share has done.
func writeClient(out *strings.Builder, r bench.Report) {
	fmt.Fprintf(out, "\nclient: %d calls were answered by nodes (connected: %d), %d of them by the second\n", r.Client.Answered, r.Client.Nodes, r.Client.Retried)
	if r.Via == bench.Leases {
		fmt.Fprintf(out, "leases: %d tokens lent, %d used, %d given back\n", r.Client.Lent, r.Client.LentUsed, r.Client.GivenBack)
	}
}

// writeTrouble says what the figures above leave out.
func writeTrouble(out *strings.Builder, r bench.Report) {
	if r.NoRule > 0 {
		fmt.Fprintf(out, "\n%d checks matched no rule, so that nothing was counted for them\n", r.NoRule)
	}
	if r.Unsent > 0 {
		fmt.Fprintf(out, "\n%d checks were not sent in time, as all callers were waiting: the rate is more than %d callers and the servers can do\n",
			r.Unsent, r.Callers)
	}
	if r.Errors > 0 {
		var codes []string
		for code, n := range r.Failures {
			codes = append(codes, fmt.Sprintf("%s %d", code, n))
		}
		slices.Sort(codes)
		fmt.Fprintf(out, "\nno answer: %s\n", strings.Join(codes, ", "))
	}
}

func writePercentiles(t table, name string, p bench.Percentiles) {
	t.row(name, formatMicros(p.P50), formatMicros(p.P90), formatMicros(p.P99), formatMicros(p.P999), formatMicros(p.Max))
}

// formatMicros shows four digits, as in "1.234ms".
func formatMicros(micros float64) string {
	d := time.Duration(micros * float64(time.Microsecond))
	for unit := time.Second; unit > time.Microsecond; unit /= 1000 {
		if d >= unit {
			return d.Round(unit / 1000).String()
		}
	}
	return d.Round(time.Microsecond / 10).String()
}
