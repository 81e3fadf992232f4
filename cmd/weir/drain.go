package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

// Times of draining.
const (
	drainTimeout = time.Minute
	drainLook    = 200 * time.Millisecond
)

func (a *app) drainCommand() *cobra.Command {
	q := nodeFlags{timeout: drainTimeout}
	var undo bool
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Have a node hand its counters over to the others",
		Long: `Have a node hand its counters over to the others, and wait until it has. The node still
answers checks, by forwarding them, and is no longer ready. After that it can be stopped
without a failed check. A SIGTERM to the node does the same.`,
		Example: `  weir drain weir-2
  weir drain --cancel weir-2   the node takes counters again`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(cmd, "drain takes the id of one node, but got %q; \"weir nodes\" lists the ids", args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				return a.drain(ctx, &q, c, args[0], undo)
			})
		},
	}
	cmd.Flags().BoolVar(&undo, "cancel", false, "let the node take counters again")
	q.addTo(cmd)
	return cmd
}

// drain asks the node of that id, which c knows, and waits until it holds nothing.
func (a *app) drain(ctx context.Context, q *nodeFlags, c *client.Node, id string, undo bool) error {
	n, err := find(ctx, c, id)
	if err != nil {
		return err
	}
	its, err := q.connectAdmin(ctx, n)
	if err != nil {
		return err
	}
	defer func() { _ = its.Close() }() // all is said by then
	answer, err := its.DrainNode(ctx, id, undo)
	if err != nil {
		return err
	}
	if undo {
		return a.print(q.json, answer, fmt.Sprintf("%s takes counters again\n", id))
	}
	look := time.NewTicker(drainLook)
	defer look.Stop()
	for said := uint32(0); ; {
		n, err := find(ctx, its, id)
		if err != nil {
			return err
		}
		left := n.GetActive() + n.GetLeaving()
		if left == 0 {
			return a.print(q.json, &weirv1.DrainNodeResponse{}, fmt.Sprintf("%s has no counters any more and can be stopped\n", id))
		}
		if left != said && !q.json {
			if _, err := fmt.Fprintf(a.stdout, "%s: %d partitions left\n", id, left); err != nil {
				return err
			}
			said = left
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%[2]s still has %[3]d partitions after %[1]v; it goes on handing them over while etcd answers; wait longer with --timeout, or look with \"weir nodes\" and \"weir doctor --node\"", q.timeout, id, left)
		}
	}
}

// find returns the node of that id as c sees it.
func find(ctx context.Context, c *client.Node, id string) (*weirv1.Node, error) {
	nodes, err := c.ListNodes(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, n := range nodes.GetNodes() {
		if n.GetId() == id {
			return n, nil
		}
		ids = append(ids, n.GetId())
	}
	return nil, fmt.Errorf("there is no node %q%s", id, didYouMean(id, ids))
}
