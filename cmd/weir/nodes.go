package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

func (a *app) nodesCommand() *cobra.Command {
	var q nodeFlags
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes of the cluster",
		Long: `List the nodes of the cluster as one node sees them:

  STATE        what the node says about itself
  MEMBER       whether it is in the view
  REACHABLE    whether the asked node reaches it
  PARTITIONS   how many it owns in the view
  MOVING       how many are still on their way to it or from it
  STARTS       how often it was started
  RULES        the hash of its rules

A node that would join and that members do not reach is named below, with these
members and the address.`,
		Example: `  weir nodes
  weir nodes --node 10.0.0.1:9090 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				response, err := c.ListNodes(ctx)
				if err != nil {
					return err
				}
				return a.print(q.json, response, formatNodes(response))
			})
		},
	}
	q.addTo(cmd)
	cmd.AddCommand(a.removeCommand())
	return cmd
}

func (a *app) removeCommand() *cobra.Command {
	var q nodeFlags
	cmd := &cobra.Command{
		Use:   "remove NODE",
		Short: "Take a dead node out of the cluster",
		Long: `Take a node that is dead, and still a member, out of the cluster: its partitions go to
others at once. Members that die together may be such. It is refused while any member reaches the
node: weir drain hands over what that has. A removed node that lives joins again by itself.`,
		Example: `  weir nodes remove weir-2`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(cmd, "remove takes the id of one node, see weir nodes, but got %q", args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				response, err := c.RemoveNode(ctx, args[0])
				if err != nil {
					return err
				}
				text := fmt.Sprintf("%s is no member of view %d\n", args[0], response.GetView())
				if response.GetMember() {
					text = fmt.Sprintf("%s counts for dead from view %d on, and is dropped once members may change\n", args[0], response.GetView())
				}
				return a.print(q.json, response, text)
			})
		},
	}
	q.addTo(cmd)
	return cmd
}

func formatNodes(response *weirv1.ListNodesResponse) string {
	var out strings.Builder
	table := newTable(&out, "NODE", "ADDRESS", "STATE", "MEMBER", "REACHABLE", "PARTITIONS", "MOVING", "STARTS", "VERSION", "RULES")
	members := 0
	for _, n := range response.GetNodes() {
		if n.GetMember() {
			members++
		}
		table.row(n.GetId(), n.GetAddress(), formatState(n.GetState()), yesNo(n.GetMember()), yesNo(n.GetReachable()),
			n.GetPartitions(), formatMoves(n), n.GetIncarnation(), orDash(n.GetVersion()), orDash(n.GetRulesHash()))
	}
	table.flush()
	fmt.Fprintf(&out, "\nview %d, members %d of %d\n", response.GetView(), members, len(response.GetNodes()))
	for _, n := range response.GetNodes() {
		if reason := n.GetUnreached(); reason != "" {
			fmt.Fprintf(&out, "%s is no member: %s\n", n.GetId(), reason)
		}
	}
	if n := differentRules(response.GetNodes()); n > 1 {
		fmt.Fprintf(&out, "%d different sets of rules are in force\n", n)
	}
	return out.String()
}

// formatMoves says how many partitions are still to come, and to leave.
func formatMoves(n *weirv1.Node) string {
	var moves []string
	if in := n.GetWanted(); in > 0 {
		moves = append(moves, fmt.Sprintf("%d in", in))
	}
	if out := n.GetLeaving(); out > 0 {
		moves = append(moves, fmt.Sprintf("%d out", out))
	}
	return orDash(strings.Join(moves, ", "))
}

// differentRules returns how many there are in force on the nodes.
func differentRules(nodes []*weirv1.Node) int {
	hashes := make(map[string]bool)
	for _, n := range nodes {
		if hash := n.GetRulesHash(); hash != "" { // else its key is gone from etcd
			hashes[hash] = true
		}
	}
	return len(hashes)
}

func formatState(state weirv1.NodeState) string {
	switch state {
	case weirv1.NodeState_NODE_STATE_UNSPECIFIED:
		return "gone" // its key is gone from etcd
	case weirv1.NodeState_NODE_STATE_JOINING:
		return "starting" // /readyz says no
	default:
		return strings.ToLower(strings.TrimPrefix(state.String(), "NODE_STATE_"))
	}
}
