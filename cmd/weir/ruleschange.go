package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

const (
	// defaultApplyTimeout is for a change and for all nodes to run it.
	defaultApplyTimeout = 10 * time.Second
	// nodesEvery is how often the nodes are looked at meanwhile.
	nodesEvery = 50 * time.Millisecond
)

func (a *app) applyCommand() *cobra.Command {
	q := nodeFlags{timeout: defaultApplyTimeout}
	var f files
	var prune, dryRun bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Add and replace rules from a file",
		Long: `Add the rules of a file, replace those that exist already, all or none, and wait until
every node runs them. Rules that the file lacks stay. With --prune they are removed from
every domain that the file has; {domain: shop, rules: []} then empties a domain.

The exit code is 0 if all nodes run the rules, 1 if some do not in time, and 2 on an
error. An error about the rules means that nothing was changed. If the node or etcd does
not answer, the rules may have changed or not; "weir rules diff" shows it. Once the
command has printed that the rules are stored, they are stored, even if it cannot ask
the nodes afterwards.`,
		Example: `  weir rules apply -f rules.yaml
  weir rules apply -f /etc/weir/rules --prune --timeout 30s
  weir rules export | sed 's/limit: 10,/limit: 20,/' | weir rules apply -f -`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			request, err := a.request(cmd, f)
			if err != nil {
				return err
			}
			request.Prune, request.DryRun = prune, dryRun
			return a.apply(cmd, &q, request)
		},
	}
	f.addTo(cmd)
	cmd.Flags().BoolVar(&prune, "prune", false, "remove rules that the file lacks, in the domains that it has")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would change, and store nothing")
	q.addTo(cmd)
	return cmd
}

func (a *app) apply(cmd *cobra.Command, q *nodeFlags, request *weirv1.ApplyRulesRequest) error {
	return a.changeAndWait(cmd, q, func(ctx context.Context, c *client.Node) (string, error) {
		response, err := c.Config().ApplyRules(ctx, request)
		if err != nil {
			return "", err
		}
		text := formatChanges(response)
		if request.GetDryRun() {
			return "", a.print(q.json, response, text+formatDryRun(response))
		}
		return response.GetRulesHash(), a.print(q.json, response, text+formatApplied(response))
	})
}

func (a *app) deleteCommand() *cobra.Command {
	q := nodeFlags{timeout: defaultApplyTimeout}
	var domain string
	cmd := &cobra.Command{
		Use:   "delete [DOMAIN/]ID",
		Short: "Delete one rule",
		Long: `Delete one rule, and wait until no node runs it any more.

The exit code is 0 if no node runs it, 1 if some still do at the end of --timeout, and 2
on an error. An error about the rule means that nothing was deleted. If the node or etcd
does not answer, the rule may be deleted or not; "weir rules get" shows it. Once the
command has printed that the rule is deleted, it is, even if it cannot ask the nodes
afterwards.`,
		Example: `  weir rules delete posts-per-user
  weir rules delete shop/posts-per-user
  weir rules delete posts-per-user --domain shop`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeAndWait(cmd, &q, func(ctx context.Context, c *client.Node) (string, error) {
				name, err := ruleName{domain, args[0]}.resolve(ctx, c)
				if err != nil {
					return "", err
				}
				response, err := c.Config().DeleteRateLimit(ctx, &weirv1.DeleteRateLimitRequest{Domain: name.domain, Id: name.id})
				if err != nil {
					return "", err
				}
				text := fmt.Sprintf("deleted %s in revision %d (%s)\n", name, response.GetRevision(), response.GetRulesHash())
				return response.GetRulesHash(), a.print(q.json, response, text)
			})
		},
	}
	addDomain(cmd, &domain)
	q.addTo(cmd)
	return cmd
}

// changeAndWait makes a change and waits until all members run the content
// hash that it returns; none means that there is nothing to wait for.
func (a *app) changeAndWait(cmd *cobra.Command, q *nodeFlags, change func(context.Context, *client.Node) (string, error)) error {
	var missing []string
	err := a.ask(cmd, q, func(ctx context.Context, c *client.Node) error {
		hash, err := change(ctx, c)
		if err != nil || hash == "" {
			return err
		}
		var members int
		members, missing, err = awaitNodes(ctx, c, hash)
		if err == nil && len(missing) == 0 && !q.json {
			_, err = fmt.Fprintf(a.stdout, "%s\n", formatRunning(members))
		}
		return err
	})
	if err == nil && len(missing) > 0 {
		return &exitError{code: 1, err: fmt.Errorf("the rules are stored, but after %v some nodes do not run them: %s",
			q.timeout, strings.Join(missing, "; "))}
	}
	return err
}

// awaitNodes waits until all members run the rules of that hash, and
// returns how many there are. When ctx ends first it returns the others, with what
// they run.
func awaitNodes(ctx context.Context, c *client.Node, hash string) (members int, missing []string, err error) {
	look := time.NewTicker(nodesEvery)
	defer look.Stop()
	for {
		nodes, lookErr := c.ListNodes(ctx)
		if lookErr == nil {
			members, missing = 0, nil
			for _, n := range nodes.GetNodes() {
				if !n.GetMember() {
					continue
				}
				members++
				if n.GetRulesHash() != hash {
					missing = append(missing, formatMissing(n))
				}
			}
			if len(missing) == 0 {
				return members, nil, nil
			}
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			if missing == nil {
				return 0, nil, lookErr // no answer was given
			}
			return members, missing, nil
		}
	}
}

func (a *app) diffCommand() *cobra.Command {
	var q nodeFlags
	var f files
	var prune bool
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Show what a file would change",
		Long: `Show what "weir rules apply" would change with the same file and flags.

The exit code is 0 if nothing would change, 1 if something would, and 2 on an
error.`,
		Example: `  weir rules diff -f rules.yaml
  weir rules diff -f /etc/weir/rules --prune --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			request, err := a.request(cmd, f)
			if err != nil {
				return err
			}
			request.Prune, request.DryRun = prune, true
			var changed bool
			err = a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				response, err := c.Config().ApplyRules(ctx, request)
				if err != nil {
					return err
				}
				changed = response.GetChanged()
				return a.print(q.json, response, formatChanges(response))
			})
			if err == nil && changed {
				return &exitError{code: 1}
			}
			return err
		},
	}
	f.addTo(cmd)
	cmd.Flags().BoolVar(&prune, "prune", false, "as if rules that the file lacks were removed, in the domains that it has")
	q.addTo(cmd)
	return cmd
}
