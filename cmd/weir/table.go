package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// table aligns columns.
type table struct{ w *tabwriter.Writer }

func newTable(out *strings.Builder, columns ...any) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	t.row(columns...)
	return t
}

func (t table) row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		fmt.Fprint(t.w, cell)
	}
	fmt.Fprintln(t.w)
}

// flush cannot fail: what is below is memory.
func (t table) flush() { _ = t.w.Flush() }
