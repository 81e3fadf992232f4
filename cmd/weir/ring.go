package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

func (a *app) ringCommand() *cobra.Command {
	var q nodeFlags
	var tables bool
	cmd := &cobra.Command{
		Use:   "ring",
		Short: "Show how much of the ring each node owns",
		Long: `Show how many partitions each member of the cluster owns and stands by for, as
one node sees it.`,
		Example: `  weir ring
  weir ring --tables         the owner and the standby of every partition
  weir ring --tables --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				response, err := c.GetRing(ctx, tables)
				if err != nil {
					return err
				}
				text := formatRing(response)
				if tables {
					text = formatTables(response)
				}
				return a.print(q.json, response, text)
			})
		},
	}
	cmd.Flags().BoolVar(&tables, "tables", false, "list every partition")
	q.addTo(cmd)
	return cmd
}

func formatRing(response *weirv1.GetRingResponse) string {
	var out strings.Builder
	table := newTable(&out, "NODE", "OWNED", "SHARE", "STANDBY")
	for _, s := range response.GetShares() {
		// At least 1, for a node that has no ring yet.
		share := 100 * float64(s.GetOwned()) / float64(max(response.GetPartitions(), 1))
		table.row(s.GetId(), s.GetOwned(), fmt.Sprintf("%.1f%%", share), s.GetStandby())
	}
	table.flush()
	fmt.Fprintf(&out, "\nview %d, %d partitions\n", response.GetView(), response.GetPartitions())
	return out.String()
}

func formatTables(response *weirv1.GetRingResponse) string {
	shares := response.GetShares()
	name := func(table []uint32, partition int) string {
		// The table comes from another process, perhaps of another version.
		if partition >= len(table) || int(table[partition]) >= len(shares) {
			return "-"
		}
		return shares[table[partition]].GetId()
	}
	var out strings.Builder
	table := newTable(&out, "PARTITION", "OWNER", "STANDBY")
	for p := range response.GetOwners() {
		table.row(p, name(response.GetOwners(), p), name(response.GetStandbys(), p))
	}
	table.flush()
	return out.String()
}
