package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir/api"
	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/rules"
)

const (
	// defaultApplyTimeout is for a change and for all nodes to run it.
	defaultApplyTimeout = 10 * time.Second
	// nodesEvery is how often the nodes are looked at meanwhile.
	nodesEvery = 50 * time.Millisecond
	// maxWatchMessage is far above what a node sends at once, 1 MiB and one rule.
	maxWatchMessage = 16 << 20
)

func (a *app) rulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules COMMAND",
		Short: "Read and change the rules of the cluster",
		Long: `Read and change the rules of the cluster. They stand in etcd, and every node runs
a change within a second. Nodes that were started with --rules have their own.`,
		Example: `  weir rules apply -f rules.yaml   change them
  weir rules diff -f rules.yaml    what that would change
  weir rules export                what they are`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.applyCommand(), a.diffCommand(), a.lintCommand(), a.listCommand(), a.getCommand(), a.deleteCommand(), a.exportCommand())
	return cmd
}

// file is the flag that names rules.
type file struct{ path string }

func (f *file) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.path, "file", "f", "", "`FILE` of rules, a directory of them, or - for standard input")
}

// rules returns what the file holds.
func (a *app) rules(cmd *cobra.Command, f file) ([]rules.Document, error) {
	switch f.path {
	case "":
		return nil, usageError(cmd, "nothing says which rules; add for example -f rules.yaml")
	case "-":
		data, err := io.ReadAll(a.stdin)
		if err != nil {
			return nil, err
		}
		return rules.ParseDocuments("standard input", data)
	}
	return rules.LoadDocuments(f.path)
}

// request returns the request to apply the file. What is wrong with it is told
// before a node is asked, with the names of all files of a directory.
func (a *app) request(cmd *cobra.Command, f file) (*weirv1.ApplyRulesRequest, error) {
	docs, err := a.rules(cmd, f)
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		return nil, err
	}
	if err != nil {
		return nil, &exitError{err: err, code: 2}
	}
	text, err := rules.Format(docs)
	if err != nil {
		return nil, err
	}
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return &weirv1.ApplyRulesRequest{RulesGzip: compressed.Bytes(), Name: filepath.Base(f.path)}, nil
}

func (a *app) applyCommand() *cobra.Command {
	q := asking{timeout: defaultApplyTimeout}
	var f file
	var prune, dryRun bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Make the rules be as in a file",
		Long: `Add the rules of a file and replace those that are there already, all or none,
and wait until every node runs them. Rules that the file lacks stay, unless --prune
is given: then they go from every domain that the file has. A domain that has no
rules in the file is emptied by it: {domain: shop, rules: []}.

The exit code is 0 if all nodes run the rules, 1 if some do not in time, and 2 if
nothing was changed because of an error.`,
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
	cmd.Flags().BoolVar(&prune, "prune", false, "remove the rules that the file lacks from its domains")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would change")
	q.addTo(cmd)
	return cmd
}

func (a *app) apply(cmd *cobra.Command, q *asking, request *weirv1.ApplyRulesRequest) error {
	return a.changeAndWait(cmd, q, func(ctx context.Context, c *client.Node) (string, error) {
		response, err := c.Config().ApplyRules(ctx, request)
		if err != nil {
			return "", err
		}
		text := formatChanges(response)
		if request.GetDryRun() {
			return "", a.print(q.json, response, text+formatDryRun(response))
		}
		return response.GetRuleRevision(), a.print(q.json, response, text+formatApplied(response))
	})
}

// changeAndWait makes a change and waits until all members run the content
// revision that it returns; none means that there is nothing to wait for.
func (a *app) changeAndWait(cmd *cobra.Command, q *asking, change func(context.Context, *client.Node) (string, error)) error {
	var missing []string
	err := a.ask(cmd, q, func(ctx context.Context, c *client.Node) error {
		revision, err := change(ctx, c)
		if err != nil || revision == "" {
			return err
		}
		var members int
		members, missing, err = awaitNodes(ctx, c, revision)
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

// awaitNodes waits until all members run the rules of that content revision, and
// returns how many there are. When ctx ends first it returns the others, with what
// they run.
func awaitNodes(ctx context.Context, c *client.Node, revision string) (members int, missing []string, err error) {
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
				if n.GetRuleRevision() != revision {
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
				return 0, nil, lookErr // nobody has said anything
			}
			return members, missing, nil
		}
	}
}

func (a *app) diffCommand() *cobra.Command {
	var q asking
	var f file
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
	cmd.Flags().BoolVar(&prune, "prune", false, "as if the rules that the file lacks were removed from its domains")
	q.addTo(cmd)
	return cmd
}

func (a *app) lintCommand() *cobra.Command {
	var f file
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lint -f FILE",
		Short: "Check a file without a node",
		Long: `Check rules as a node would, and list everything that is wrong with them.

The exit code is 0 if nothing is, 1 if something is, and 2 if there is no such
file.`,
		Example: `  weir rules lint -f rules.yaml
  weir rules lint -f /etc/weir/rules --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			docs, err := a.rules(cmd, f)
			return a.lint(docs, err, asJSON)
		},
	}
	f.addTo(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// lint prints what loading has led to.
func (a *app) lint(docs []rules.Document, err error, asJSON bool) error {
	refused := &rules.LoadError{}
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		return err
	}
	if err != nil && (!errors.As(err, &refused) || errors.Is(err, os.ErrNotExist)) {
		return &exitError{err: err, code: 2}
	}
	text := formatLint(docs, refused)
	if asJSON {
		if text, err = lintJSON(docs, refused); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(a.stdout, text); err != nil {
		return err
	}
	if len(refused.Problems) > 0 {
		return &exitError{code: 1}
	}
	return nil
}

func (a *app) listCommand() *cobra.Command {
	var q asking
	var domain string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the rules",
		Long:  `List the rules that a node runs, in their order.`,
		Example: `  weir rules list
  weir rules list --domain shop --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				state, err := readRules(ctx, c, domain)
				if err != nil {
					return err
				}
				return a.print(q.json, state, formatList(state))
			})
		},
	}
	cmd.Flags().StringVar(&domain, "domain", "", "only the rules of this `NAMESPACE` (default all)")
	q.addTo(cmd)
	return cmd
}

// readRules returns all rules that a node runs, of one moment and in their order.
func readRules(ctx context.Context, c *client.Node, domain string) (*weirv1.WatchRulesResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watch
	stream, err := c.Config().WatchRules(ctx, &weirv1.WatchRulesRequest{Domain: domain}, grpc.MaxCallRecvMsgSize(maxWatchMessage))
	if err != nil {
		return nil, err
	}
	state := &weirv1.WatchRulesResponse{}
	for !state.GetComplete() {
		part, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		state.Revision, state.RuleRevision, state.Complete = part.GetRevision(), part.GetRuleRevision(), part.GetComplete()
		state.RateLimits = append(state.RateLimits, part.GetRateLimits()...)
	}
	return state, nil
}

func (a *app) getCommand() *cobra.Command {
	var q asking
	var domain string
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show one rule",
		Long:  `Show one rule as a node runs it, in the form that "weir rules apply" reads.`,
		Example: `  weir rules get posts-per-user
  weir rules get posts-per-user --domain shop --json`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				response, err := c.Config().GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Domain: domain, Id: args[0]})
				if err != nil {
					return err
				}
				text, err := rules.Format(api.Documents([]*weirv1.RateLimit{response}))
				if err != nil {
					return err
				}
				return a.print(q.json, response, string(text))
			})
		},
	}
	addDomain(cmd, &domain)
	q.addTo(cmd)
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	q := asking{timeout: defaultApplyTimeout}
	var domain string
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete one rule",
		Long: `Delete one rule, and wait until no node runs it any more.

The exit code is 0 if none does, 1 if some still do when the time is over, and 2
if nothing was deleted because of an error.`,
		Example: `  weir rules delete posts-per-user
  weir rules delete posts-per-user --domain shop`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeAndWait(cmd, &q, func(ctx context.Context, c *client.Node) (string, error) {
				response, err := c.Config().DeleteRateLimit(ctx, &weirv1.DeleteRateLimitRequest{Domain: domain, Id: args[0]})
				if err != nil {
					return "", err
				}
				text := fmt.Sprintf("deleted %s in revision %d (%s)\n", args[0], response.GetRevision(), response.GetRuleRevision())
				return response.GetRuleRevision(), a.print(q.json, response, text)
			})
		},
	}
	addDomain(cmd, &domain)
	q.addTo(cmd)
	return cmd
}

func oneID(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return usageError(cmd, "%s takes the id of one rule, but got %d arguments", cmd.Name(), len(args))
}

func (a *app) exportCommand() *cobra.Command {
	var q asking
	var domain, output string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the rules as a file",
		Long:  `Write the rules that a node runs as a file that "weir rules apply" reads.`,
		Example: `  weir rules export
  weir rules export --domain shop -o shop.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && q.json {
				return usageError(cmd, "--output writes a file of rules, --json prints JSON; leave one of them out")
			}
			return a.ask(cmd, &q, func(ctx context.Context, c *client.Node) error {
				state, err := readRules(ctx, c, domain)
				if err != nil {
					return err
				}
				if domain != "" && len(state.GetRateLimits()) == 0 {
					return fmt.Errorf("domain %q has no rules", domain)
				}
				text, err := rules.Format(api.Documents(state.GetRateLimits()))
				if err != nil {
					return err
				}
				if output != "" {
					return os.WriteFile(output, text, 0o644)
				}
				return a.print(q.json, state, string(text))
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to `FILE` (default standard output)")
	cmd.Flags().StringVar(&domain, "domain", "", "only the rules of this `NAMESPACE` (default all)")
	q.addTo(cmd)
	return cmd
}
