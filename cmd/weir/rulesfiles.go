package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/rules/envoy"
)

// how is how the files are read: as the flags say, and what they do not say is as a node would
// read it that is started in this environment.
func (f *files) how(cmd *cobra.Command, env map[string]string) (rules.Options, error) {
	given, err := lyftOptions(env, func(option string) string {
		if option == "rules" {
			return "the files"
		}
		return env[variable(option)]
	})
	if err != nil {
		given = nil // what keeps a node from starting there does not matter here
	}
	how := rules.Options{Envoy: envoy.Options{Merge: f.merge}}
	if !cmd.Flags().Changed("merge-domains") {
		how.Envoy.Merge, _ = strconv.ParseBool(given["merge-domains"].text) // nothing is false
	}
	which := f.which
	if !cmd.Flags().Changed("rules-files") {
		which = given["rules-files"].text
	}
	if how.Files, err = rules.ParseFiles(which); err != nil {
		return how, usageError(cmd, "--rules-files: %w", err)
	}
	return how, nil
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
	for i, path := range f.paths {
		switch {
		case path == "":
			return nil, nil, usageError(cmd, "--file: \"\" is not the name of a file; give a file, a directory, or - for standard input")
		case slices.Contains(f.paths[:i], path):
			return nil, nil, usageError(cmd, "--file: %s is given twice", path)
		}
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
