package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/rules"
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

// file are the flags that name rules.
type file struct {
	path  string
	merge bool
}

func (f *file) addTo(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.merge, "merge-domains", false, "permit several files of envoyproxy/ratelimit for one domain")
	cmd.Flags().StringVarP(&f.path, "file", "f", "", "`FILE` of rules, a directory of them, or - for standard input")
}

// rules returns what the file holds, and warnings.
func (a *app) rules(cmd *cobra.Command, f file) ([]rules.Document, []rules.Problem, error) {
	how := rules.Lyft{Merge: f.merge}
	switch f.path {
	case "":
		return nil, nil, usageError(cmd, "nothing says which rules; add for example -f rules.yaml")
	case "-":
		data, err := io.ReadAll(a.stdin)
		if err != nil {
			return nil, nil, err
		}
		return how.ParseDocuments("standard input", data)
	}
	return how.LoadDocuments(f.path)
}

// request returns the request to apply the file. What is wrong with it is told
// before a node is asked, with the names of all files of a directory.
func (a *app) request(cmd *cobra.Command, f file) (*weirv1.ApplyRulesRequest, error) {
	docs, warnings, err := a.rules(cmd, f)
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		return nil, err
	}
	if err != nil {
		return nil, &exitError{err: err, code: 2}
	}
	a.warn(warnings)
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
