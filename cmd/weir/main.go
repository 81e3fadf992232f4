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
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/node"
)

func main() {
	os.Exit(newApp(os.Environ(), os.Stdout, os.Stderr).run(os.Args[1:]))
}

// app is what the commands share: everything that they touch outside.
type app struct {
	env            map[string]string
	stdin          io.Reader
	stdout, stderr io.Writer
	// runNode is node.Run. It blocks until the node has stopped.
	runNode func(context.Context, node.Options, *slog.Logger, func(node.Info)) error
	// exit ends the process at once.
	exit func(code int)
}

func newApp(environ []string, stdout, stderr io.Writer) *app {
	env := make(map[string]string, len(environ))
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	return &app{env: env, stdin: os.Stdin, stdout: stdout, stderr: stderr, runNode: node.Run, exit: os.Exit}
}

// run runs the command line args and returns the exit code.
func (a *app) run(args []string) int {
	root := a.rootCommand()
	root.SetArgs(append([]string{}, args...)) // to cobra, nil means os.Args
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.Execute()
	if err == nil {
		return 0
	}
	code := 1
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
	}
	if err.Error() != "" {
		fmt.Fprintf(a.stderr, "weir: %v\n", err)
	}
	if exit != nil && exit.help != "" {
		fmt.Fprintf(a.stderr, "Run \"%s --help\" for how to use it.\n", exit.help)
	}
	return code
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir COMMAND",
		Short: "A distributed rate limiter",
		Long: `Weir is a distributed rate limiter: every node answers every check, and all
nodes together hold one limit.`,
		Example: `  weir serve                                    run a node
  weir check user=alice endpoint=/api/v1/posts  ask it
  weir rules apply -f rules.yaml                say what it allows`,
		Version:       versionText(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(a.serveCommand(), a.checkCommand(), a.explainCommand(), a.statusCommand(), a.resetCommand(), a.rulesCommand(),
		a.nodesCommand(), a.ringCommand(), a.drainCommand(), a.viewCommand(), a.benchCommand(), a.versionCommand())
	return root
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

"{{.CommandPath}} COMMAND --help" tells more about a command.
{{- end}}
`
