package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

func (a *app) auditCommand() *cobra.Command {
	var q nodeFlags
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List the last changes that callers have asked the nodes for",
		Long: `List the last changes of rules, counters and the cluster that callers have asked the nodes for, the
oldest first: when, which node, which caller and how its name is known, from where, what, and the
outcome. Nodes keep the last 1000 in memory; weir serve --audit-log writes all of them to a file.
It needs the role admin.`,
		Example: `  weir audit
  weir audit --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error { return a.audit(ctx, &q, c) })
		},
	}
	q.addTo(cmd)
	return cmd
}

// audit asks all nodes that c knows. Those that do not answer are named.
func (a *app) audit(ctx context.Context, q *nodeFlags, c *client.Node) error {
	nodes, err := c.ListNodes(ctx)
	if err != nil {
		return err
	}
	all := &weirv1.ListAuditResponse{}
	var silent []string
	var last error
	for _, n := range nodes.GetNodes() {
		one, err := q.auditOf(ctx, n)
		if err != nil {
			silent, last = append(silent, n.GetId()), err
			continue
		}
		all.Entries = append(all.Entries, one.GetEntries()...)
	}
	if last != nil && len(silent) == len(nodes.GetNodes()) {
		return last
	}
	slices.SortStableFunc(all.Entries, func(x, y *weirv1.AuditEntry) int { return cmp.Compare(x.GetTime(), y.GetTime()) })
	if err := a.print(q.json, all, formatAudit(all)); err != nil || last == nil {
		return err
	}
	return fmt.Errorf("the changes of %s are missing: %w", strings.Join(silent, ", "), last)
}

func (q *nodeFlags) auditOf(ctx context.Context, n *weirv1.Node) (*weirv1.ListAuditResponse, error) {
	c, err := q.connectAdmin(ctx, n)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // all is said by then
	return c.ListAudit(ctx)
}

// formatAudit returns a line per change. Texts that callers have chosen are quoted, so that they cannot
// look like another line or direct the terminal.
func formatAudit(all *weirv1.ListAuditResponse) string {
	if len(all.GetEntries()) == 0 {
		return "no changes\n"
	}
	var b strings.Builder
	for _, e := range all.GetEntries() {
		caller, from := "- (no TLS)", e.GetFrom()
		switch {
		case e.GetProof() != "":
			caller = fmt.Sprintf("%s (%s)", e.GetClient(), e.GetProof())
		case from == "": // the node has found it itself
			caller, from = "-", "-"
		}
		fmt.Fprintf(&b, "%s  %s  %s  %s  %s  %s  %s", time.Unix(0, e.GetTime()).UTC().Format(time.RFC3339), e.GetNode(), caller, from,
			e.GetAction(), strconv.QuoteToASCII(e.GetTarget()), e.GetOutcome())
		if e.GetReason() != "" {
			b.WriteString("  " + strconv.QuoteToASCII(e.GetReason()))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
