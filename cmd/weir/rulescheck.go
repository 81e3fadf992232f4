package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/rules"
)

func (a *app) diffCommand() *cobra.Command {
	var q asking
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

func (a *app) lintCommand() *cobra.Command {
	var f files
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lint -f FILE",
		Short: "Check a file without a node",
		Long: `Check rules as a node would, and list every mistake.

The exit code is 0 if there is none, 1 if there are some, and 2 if the file does not
exist.`,
		Example: `  weir rules lint -f rules.yaml
  weir rules lint -f /etc/weir/rules --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			docs, warnings, err := a.rules(cmd, f)
			a.warn(warnings)
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
