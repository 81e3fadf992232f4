package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config COMMAND",
		Short:   "Check the options of a node",
		Example: `  weir config check weir.yaml   check the file before a node is started with it`,
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.configCheckCommand())
	return cmd
}

func (a *app) configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check the file of options that weir serve reads",
		Long: `Check the file of options that "weir serve --config FILE" would read, together with the
WEIR_* variables of the environment, which win over the file. The command lists the
options that are set, and where, or all mistakes. Without FILE it checks the file that
$WEIR_CONFIG names, if any.

Only keys and values are checked. Whether a port is free or a directory exists shows when
the node starts. "weir rules lint" checks the rules.

The exit code is 0 if a node could use the options, and 2 if not.`,
		Example: `  weir config check weir.yaml
  WEIR_GRPC=0.0.0.0:9090 weir config check weir.yaml
  weir config check            the environment, and the file in $WEIR_CONFIG`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && args[0] == "" {
				return usageError(cmd, "check takes one file at most, but got %q", args)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.checkConfig(args) },
	}
}

// checkConfig prints what weir serve would use, or what it would refuse.
func (a *app) checkConfig(args []string) error {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	addOptions(flags)
	if len(args) == 1 {
		if err := flags.Set("config", args[0]); err != nil {
			return err
		}
	}
	opts, values, err := readOptions(flags, a.env)
	for _, name := range unknownVariables(a.env) {
		fmt.Fprintf(a.stderr, "warning: unknown environment variable %s\n", name)
	}
	for _, ignored := range lyftWarnings(a.env, opts) {
		fmt.Fprintf(a.stderr, "warning: %s of envoyproxy/ratelimit ignored: %s\n", strings.Join(ignored.names, ", "), ignored.because)
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.stdout, formatConfig(values))
	return err
}

// formatConfig lists the options that are set.
func formatConfig(values map[string]given) string {
	var out strings.Builder
	if len(values) > 0 {
		table := newTable(&out, "OPTION", "VALUE", "FROM")
		for _, o := range options() {
			if value, set := values[o.name]; set {
				table.row(o.name, orDash(value.text), strings.TrimSuffix(value.where, ": "+o.name))
			}
		}
		table.flush()
		out.WriteString("\n")
	}
	fmt.Fprintf(&out, "good: %s set\n", count(len(values), "option"))
	return out.String()
}
