package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/backtest"
)

// formatSimulation renders a result for people.
func formatSimulation(r *backtest.Result, compared bool) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d lines, %s to %s\n", r.Lines, instantText(r.First), instantText(r.Last))
	fmt.Fprintf(&out, "allowed  %d  %s\n", r.Allowed, percentOf(r.Allowed, r.Decided()))
	fmt.Fprintf(&out, "denied   %d  %s\n", r.Denied, percentOf(r.Denied, r.Decided()))
	if r.NoRule > 0 {
		fmt.Fprintf(&out, "no rule  %d  %s\n", r.NoRule, percentOf(r.NoRule, r.Decided()))
	}
	formatTrouble(&out, &r.LogFacts)
	formatDiffering(&out, r)
	if compared {
		c := r.Against
		fmt.Fprintf(&out, "\nthe other rules deny %d; newly denied %d, newly allowed %d\n", c.Denied, c.NewlyDenied, c.NewlyAllowed)
	}
	if len(r.Rules) > 0 {
		out.WriteString("\n")
		formatRuleResults(&out, r)
	}
	formatWhom(&out, r)
	formatMoments(&out, r)
	return out.String()
}

// formatTrouble says what is wrong with the log.
func formatTrouble(out *strings.Builder, r *backtest.LogFacts) {
	for _, name := range slices.Sorted(maps.Keys(r.Skipped)) {
		at := ""
		if first := r.FirstSkipped[name]; first != "" {
			at = ", the first one at " + printable(first)
		}
		fmt.Fprintf(out, "skipped  %d  %s%s\n", r.Skipped[name], skippedTexts[name], at)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Missing)) {
		fmt.Fprintf(out, "missing  %d  lines without %s\n", r.Missing[name], printable(name))
	}
	if r.Backward > 0 {
		fmt.Fprintf(out, "backward %d  lines earlier than one before, by %s at most\n", r.Backward, time.Duration(r.WorstBackward*float64(time.Second)))
	}
}

// formatDiffering says where the replay of a decision log is not what the log says.
func formatDiffering(out *strings.Builder, r *backtest.Result) {
	for _, source := range slices.Sorted(maps.Keys(r.Differing)) {
		fmt.Fprintf(out, "differ   %d  lines that the log decides in another way, source %s\n", r.Differing[source], printable(source))
	}
	if r.Unexplained > 0 {
		fmt.Fprintf(out, "of them  %d  for no reason that the log names: lines are missing, or other rules were in force\n", r.Unexplained)
	}
	for _, why := range slices.Sorted(maps.Keys(r.Inexact)) {
		fmt.Fprintf(out, "inexact  %d  lines that may be decided in another way than the log says, %s\n", r.Inexact[why], inexactTexts[why])
	}
	if r.Approximate > 0 {
		fmt.Fprintf(out, "about    %d  lines with tokens lent or given back, which are replayed only nearly\n", r.Approximate)
	}
}

var inexactTexts = map[string]string{
	"lent":        "because tokens of a counter were lent to nodes",
	"provisional": "because a standby has decided",
	"undecided":   "because an owner may have counted a check that it did not answer in time",
	"token_lease": "because tokens of a counter were lent to clients",
	"returned":    "because Envoy's API has given tokens back",
	"not_utf8":    "because a value is not UTF-8",
}

var skippedTexts = map[string]string{
	"broken":      "lines that are not of the format",
	"no_time":     "lines without a time that can be read",
	"ahead":       "lines that are more than a day later than most of the 16 lines after them",
	"hashed":      "lines whose values are hashes: write the decision log with --decision-log-keys clear",
	"not_decided": "lines that no limit has decided, such as those of an overload",
	"refused":     "lines that a node would answer with an error, such as those with a cost that is no number",
}

func formatRuleResults(out *strings.Builder, r *backtest.Result) {
	table := newTable(out, "RULE", "LINES", "DENIED", "SHARE", "WOULD DENY", "KEYS", "DENIED KEYS")
	for i := range r.Rules {
		s := &r.Rules[i]
		table.row(s.Domain+"/"+s.Rule, s.Lines, s.Denied, percentOf(s.Denied, s.Lines), s.WouldDeny, s.Keys, s.DeniedKeys)
	}
	table.flush()
}

// formatWhom lists the keys that are denied most.
func formatWhom(out *strings.Builder, r *backtest.Result) {
	const most = 5
	var table *table
	for i := range r.Rules {
		s := &r.Rules[i]
		for _, k := range s.Top[:min(most, len(s.Top))] {
			if table == nil {
				out.WriteString("\n")
				t := newTable(out, "DENIED", "RULE", "KEY")
				table = &t
			}
			count := strconv.FormatInt(k.Denied, 10)
			if s.TopMissed > 0 {
				count += " to " + strconv.FormatInt(k.Denied+s.TopMissed, 10)
			}
			table.row(count, s.Rule, printable(k.Key))
		}
	}
	if table != nil {
		table.flush()
	}
}

// formatMoments lists the parts of the time in which most is denied.
func formatMoments(out *strings.Builder, r *backtest.Result) {
	const most = 5
	over := slices.DeleteFunc(slices.Clone(r.Over), func(m backtest.Moment) bool { return m.Denied == 0 })
	if len(over) == 0 {
		return
	}
	slices.SortStableFunc(over, func(a, b backtest.Moment) int { return int(b.Denied - a.Denied) })
	over = over[:min(most, len(over))]
	out.WriteString("\n")
	table := newTable(out, "DENIED", "OF", fmt.Sprintf("IN %s FROM", time.Duration(r.Step)*time.Second))
	for _, m := range over {
		table.row(m.Denied, m.Checks, instantText(m.At))
	}
	table.flush()
}

// printable is a text of a log on a terminal: control characters would reach it.
func printable(text string) string {
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func instantText(seconds int64) string {
	if seconds == 0 {
		return "-"
	}
	return time.Unix(seconds, 0).UTC().Format("2006-01-02 15:04:05Z")
}

func percentOf(n, of int64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(n)/float64(of))
}
