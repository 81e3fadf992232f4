// Command weir runs a node of a distributed rate limiter and asks nodes.
//
// Main parses flags, calls node.Run or asks a node through package client, and
// turns the outcome into an exit code.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/node"
)

func main() {
	a := newApp(os.Environ(), os.Stdout, os.Stderr)
	a.ownsProcess = true
	os.Exit(a.run(commandLine(os.Args)))
}

// commandLine returns the arguments of a program that was started by these. Under the name of envoyproxy/ratelimit it
// is started without any, and runs a node.
func commandLine(args []string) []string {
	if len(args) == 1 && filepath.Base(args[0]) == "ratelimit" {
		return []string{"serve"}
	}
	return args[min(1, len(args)):]
}

// app is what the commands share: everything that they touch outside.
type app struct {
	env            map[string]string
	stdin          io.Reader
	stdout, stderr io.Writer
	// runNode is node.RunOn. It blocks until the node has stopped.
	runNode func(context.Context, node.Network, node.Options, *slog.Logger, func(node.Info)) error
	// exit ends the process at once.
	exit func(code int)
	// ownsProcess says that there is nothing else in this process, so that what is set for
	// all of it may be set.
	ownsProcess bool
}

func newApp(environ []string, stdout, stderr io.Writer) *app {
	env := make(map[string]string, len(environ))
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	return &app{env: env, stdin: os.Stdin, stdout: stdout, stderr: stderr, runNode: node.RunOn, exit: os.Exit}
}

// run runs the command line args and returns the exit code: 2 for any error that does not
// say another.
func (a *app) run(args []string) int {
	root := a.rootCommand()
	root.SetArgs(append([]string{}, args...)) // to cobra, nil means os.Args
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.Execute()
	if err == nil {
		return 0
	}
	if err.Error() != "" {
		fmt.Fprintf(a.stderr, "weir: %v\n", err)
	}
	if exit, ok := errors.AsType[*exitError](err); ok && exit.help != "" {
		fmt.Fprintf(a.stderr, "Run \"%s --help\" for how to use it.\n", exit.help)
	}
	return exitCode(err)
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir COMMAND",
		Short: "A distributed rate limiter",
		Long: `Weir is a distributed rate limiter. Every node answers every check, and all nodes
together hold each limit.`,
		Example: `  weir serve                                    run a node
  weir check user=alice endpoint=/api/v1/posts  ask it
  weir rules apply -f rules.yaml                add or change rules`,
		Version:       versionText(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(a.bundleCommand())
	root.SetHelpCommand(helpCommand())
	root.AddCommand(a.serveCommand(), a.devCommand(), a.checkCommand(), a.explainCommand(), a.statusCommand(), a.topCommand(), a.resetCommand(), a.rulesCommand(),
		a.configCommand(), a.certsCommand(), a.tokensCommand(), a.auditCommand(), a.doctorCommand(), a.healthcheckCommand(), a.nodesCommand(), a.ringCommand(), a.drainCommand(), a.viewCommand(), a.snapshotCommand(), a.sizeCommand(), a.simulateCommand(), a.suggestCommand(), a.benchCommand(), a.versionCommand())
	refuseUnknownShells(root)
	return root
}

// helpCommand returns the command "weir help serve", the same as "weir serve --help".
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND]",
		Short:  "Describe a command",
		Hidden: true, // --help does the same
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usageError(cmd.Root(), "there is no command %q", strings.Join(args, " "))
			}
			return about.Help()
		},
	}
}

// refuseUnknownShells makes what is no shell an error of cobra's own command, which answers with
// its help.
func refuseUnknownShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = knownCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// usageTemplate is cobra's, less what weir does not have, with wrapped flags and
// the examples first: they are what most people look for.
const usageTemplate = `{{if .HasExample}}Examples:
{{.Example}}

{{end}}Usage:
  {{.UseLine}}
{{- if .HasAvailableSubCommands}}

Commands:
{{- range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{- end}}
{{- if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}
{{- end}}
{{- if .HasAvailableSubCommands}}

"{{.CommandPath}} COMMAND --help" describes a command.
{{- end}}
`
