package main

import (
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/rules"
)

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
