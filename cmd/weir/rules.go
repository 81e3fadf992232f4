package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/rules"
)

func (a *app) rulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules COMMAND",
		Short: "Read and change the rules of the cluster",
		Long: `Read and change the rules of the cluster. They are stored in etcd, and every node runs
a change within a second. Nodes that were started with --rules have rules of their own.`,
		Example: `  weir rules apply -f rules.yaml   change the rules
  weir rules diff -f rules.yaml    show what that would change
  weir rules export                write the rules as a file`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.applyCommand(), a.diffCommand(), a.lintCommand(), a.listCommand(), a.getCommand(), a.deleteCommand(), a.promoteCommand(), a.exportCommand())
	return cmd
}

// files are the flags that name rules.
type files struct {
	paths []string
	merge bool
	which string // of a directory
}

func (f *files) addTo(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.merge, "merge-domains", false, "allow several files of envoyproxy/ratelimit for one domain")
	cmd.Flags().StringVar(&f.which, "rules-files", "", "`WHICH` files of a directory are read: yaml, all, visible, runtime or visible-runtime; \"weir serve --help\" explains them")
	cmd.Flags().StringArrayVarP(&f.paths, "file", "f", nil, "`FILE` of rules, a directory of such files, or - for standard input; several -f make one set")
}

// rules returns what the files hold, and warnings.
func (a *app) rules(cmd *cobra.Command, f files) ([]rules.Document, []rules.Problem, error) {
	how, err := f.how(cmd, a.env)
	if err != nil {
		return nil, nil, err
	}
	if len(f.paths) == 0 {
		return nil, nil, usageError(cmd, "missing rules: add -f FILE, such as -f rules.yaml")
	}
	if slices.Contains(f.paths, "") {
		return nil, nil, usageError(cmd, "--file: \"\" is not the name of a file; give a file, a directory, or - for standard input")
	}
	return how.LoadDocuments(a.stdin, f.paths...)
}

// request returns the request to apply the files. What is wrong with it is told
// before a node is asked, with the names of all files of a directory.
func (a *app) request(cmd *cobra.Command, f files) (*weirv1.ApplyRulesRequest, error) {
	docs, warnings, err := a.rules(cmd, f)
	a.warn(warnings)
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
	return &weirv1.ApplyRulesRequest{RulesGzip: compressed.Bytes(), Name: f.name()}, nil
}

// name is what messages of the node call the rules.
func (f files) name() string {
	if len(f.paths) > 1 {
		return fmt.Sprintf("%s and %d more", filepath.Base(f.paths[0]), len(f.paths)-1)
	}
	return filepath.Base(f.paths[0])
}

// warn tells what is odd about rules.
func (a *app) warn(warnings []rules.Problem) {
	for _, w := range warnings {
		fmt.Fprintf(a.stderr, "warning: %s\n", w)
	}
}

func oneID(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return usageError(cmd, "%s takes the id of one rule, but got %d arguments", cmd.Name(), len(args))
}
