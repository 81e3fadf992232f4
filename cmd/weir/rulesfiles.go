package main

import (
	"strconv"

	"github.com/spf13/cobra"

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
