package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/node"
)

func (a *app) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot COMMAND",
		Short: "Move counters to a new cluster",
		Args:  knownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.snapshotExportCommand(), a.snapshotImportCommand())
	return cmd
}

func (a *app) snapshotExportCommand() *cobra.Command {
	var o node.ExportOptions
	cmd := &cobra.Command{
		Use:   "export FILE --data-dir DIR",
		Short: "Write the counters of a stopped cluster into a file",
		Long: `Write the newest snapshot of each counter that the nodes of a cluster have left into one
file. Name the data directories of all nodes, and stop the nodes before.

The file has the secret with which the cluster hashes its keys. Only its owner may read it:
keep it like a key, and remove it after the import.`,
		Example: `  weir snapshot export shop.counters --data-dir /var/lib/weir
  weir snapshot export shop.counters --data-dir /mnt/a --data-dir /mnt/b --data-dir /mnt/c`,
		Args: oneName("export", "the file to write"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(o.Dirs) == 0 {
				return usageError(cmd, "--data-dir: name the data directory of each node of the cluster")
			}
			o.File, o.Now = args[0], time.Now()
			found, err := node.ExportCounters(o)
			if err != nil {
				return err
			}
			_, err = io.WriteString(a.stdout, formatCounters(found)+"\nwritten to "+o.File+", which has the secret of the cluster: keep it like a key\n")
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&o.Dirs, "data-dir", nil, "data directory `DIR` of a node, as in weir serve --data-dir; repeat it for more")
	flags.BoolVar(&o.Partial, "partial", false, "write the file also if the directories lack counters of some partitions")
	return cmd
}

func (a *app) snapshotImportCommand() *cobra.Command {
	var o node.ImportOptions
	cmd := &cobra.Command{
		Use:   "import FILE --data-dir DIR --id ID",
		Short: "Have a new cluster begin with the counters of a file",
		Long: `Check a file of "weir snapshot export", and write its counters into the data directory of a
node that has never run. That node then founds a cluster that begins with them. Start it
first, and the other nodes once it is ready.

Keys in the file are hashed with the secret of the cluster that they are from. So the new
cluster gets that secret. A cluster that exists has another one, and cannot take them.

A counter goes on if the new cluster's rules have the same domain, id, attributes, algorithm,
window and ipv6_prefix. The limit may differ. Others are there in vain until they are over.`,
		Example: `  weir snapshot import shop.counters --data-dir /var/lib/weir --cluster shop2 --id weir-0 --dry-run
  weir snapshot import shop.counters --data-dir /var/lib/weir --cluster shop2 --id weir-0
  weir serve --data-dir /var/lib/weir --cluster shop2 --id weir-0`,
		Args: oneName("import", "the file to read"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.Dir == "":
				return usageError(cmd, "--data-dir: name the data directory of the node that is to have the counters")
			case o.ID == "":
				return usageError(cmd, "--id: name the node that is to have the counters, as in weir serve --id")
			}
			o.File, o.Now = args[0], time.Now()
			found, err := node.ImportCounters(o)
			if err != nil {
				return err
			}
			done := "written"
			if o.DryRun {
				done = "Nothing is written: this is a dry run."
			}
			_, err = fmt.Fprintf(a.stdout, "%sto          node %s of cluster %s, in %s\n\n%s\n", formatCounters(found), o.ID, o.Cluster, o.Dir, done)
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.Dir, "data-dir", "", "data directory `DIR` of the node, as in weir serve --data-dir")
	flags.StringVar(&o.Cluster, "cluster", "default", "`NAME` of the new cluster, as in weir serve --cluster")
	flags.StringVar(&o.ID, "id", "", "`ID` of the node, as in weir serve --id")
	flags.BoolVar(&o.Replace, "replace", false, "replace what was imported before, if the node has not run since")
	flags.BoolVar(&o.DryRun, "dry-run", false, "check all, and write nothing")
	return cmd
}

// formatCounters says what a file of counters has.
func formatCounters(c node.Counters) string {
	var out strings.Builder
	fmt.Fprintf(&out, "from        cluster %s\n", c.Cluster)
	for _, n := range c.Nodes {
		fmt.Fprintf(&out, "taken       %s by node %s\n", n.Taken.Format(time.RFC3339), n.ID)
	}
	fmt.Fprintf(&out, "partitions  %d of %d\n", c.Partitions-c.Missing, c.Partitions)
	fmt.Fprintf(&out, "counters    %d, of which %d are over\n", c.Counters, c.Expired)
	if c.Grants > 0 {
		fmt.Fprintf(&out, "grants      of %s, which their owner did not learn of\n", count(c.Grants, "partition"))
	}
	return out.String()
}
