package main

import "fmt"

// appendReplayed appends a table of what algorithms made of one limit.
func appendReplayed(b []byte, outcomes []outcome) []byte {
	b = fmt.Appendf(b, "\nLimit %d per minute:\n\n", outcomes[0].limit.Limit)
	b = append(b, "| algorithm | denied | wrongly allowed | wrongly denied | error of the count | most in any minute | bytes per counter |\n"...)
	b = append(b, "|---|--:|--:|--:|--:|--:|--:|\n"...)
	for _, o := range outcomes {
		b = fmt.Appendf(b, "| `%v` | %.2f %% | %.3f %% | %.3f %% | %.2f %% | %d | %d |\n", o.limit.Algorithm,
			o.share(o.denied), o.share(o.wronglyAllowed), o.share(o.wronglyDenied), o.difference(), o.worst, o.bytes/o.counters)
	}
	return b
}

// appendObserved appends the table of the counter that only observes.
func appendObserved(b []byte, c traceConfig, outcomes []outcome) []byte {
	b = fmt.Appendf(b, "\n`sliding_window` observing, %d requests of %d sources:\n\n", c.requests, c.sources)
	b = append(b, "| threshold per minute | at or above it | wrongly below | wrongly above | error of the count |\n"...)
	b = append(b, "|--:|--:|--:|--:|--:|\n"...)
	for _, o := range outcomes {
		b = fmt.Appendf(b, "| %d | %.2f %% | %.4f %% | %.4f %% | %.2f %% |\n", o.limit.Limit,
			o.share(o.denied), o.share(o.wronglyAllowed), o.share(o.wronglyDenied), o.difference())
	}
	return append(b, '\n')
}
