package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the generated pages of docs/reference")

// TestReferencePages: the pages about options and commands are what the code says.
func TestReferencePages(t *testing.T) {
	a := newApp(nil, os.Stdout, os.Stderr)
	for name, want := range map[string]string{"options.md": optionsPage(), "commands.md": commandsPage(a.rootCommand())} {
		path := filepath.Join("../../docs/reference", name)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, []byte(want)) {
			t.Errorf("%s is out of date: run go test ./cmd/weir -run TestReferencePages -update (%v)", path, err)
		}
	}
}

const generated = "<!-- written by go test ./cmd/weir -run TestReferencePages -update -->\n"

// optionsPage lists the options of a node, as flag, variable and key.
func optionsPage() string {
	var b strings.Builder
	b.WriteString("# Options of a node\n\n" + generated + `
All options of ` + "`weir serve`" + `. Each can be given as a flag, as an environment variable, or as a key of the YAML file that
` + "`--config`" + ` or ` + "`$WEIR_CONFIG`" + ` names. A flag wins over the environment, and the environment over the file. The key is
the flag without its dashes. The [glossary](../glossary.md) explains the terms.

` + "`weir config check FILE`" + ` lists the options that are set, and what is wrong with them. Lists are separated by commas; in
the file they can be YAML lists.

| flag | environment variable | value | default | meaning |
|---|---|---|---|---|
`)
	for _, o := range options() {
		kind := o.kind
		if kind == "bool" {
			kind = "true or false"
		}
		usage, initial := o.usage, o.initial
		if before, after, found := strings.Cut(usage, " (default "); found && initial == "" {
			usage, initial = before, strings.TrimSuffix(after, ")")
		} else if initial != "" {
			initial = "`" + initial + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s | %s |\n", o.name, variable(o.name), kind, initial, cell(usage))
	}
	return b.String()
}

// cell escapes what a cell of a table cannot have, and what would be an element of HTML.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`).Replace(text)
}

// commandsPage has the help of every command, with its flags in a table.
func commandsPage(root *cobra.Command) string {
	var contents, b strings.Builder
	for _, c := range commands(root) {
		title := c.CommandPath()
		fmt.Fprintf(&contents, "- [%s](#%s)\n", title, strings.ReplaceAll(title, " ", "-"))
		describe(&b, c)
	}
	return "# Commands\n\n" + generated + `
All commands of ` + "`weir`" + `, as ` + "`weir COMMAND --help`" + ` describes them. Commands that ask a node exit with 2 if there is no answer.
The [glossary](../glossary.md) explains the terms.

## Contents

` + contents.String() + b.String()
}

// commands returns the commands that do something, in the order of their names.
func commands(c *cobra.Command) (all []*cobra.Command) {
	for _, sub := range c.Commands() {
		switch {
		case sub.Hidden || sub.Name() == "completion" || sub.Name() == "help":
		default:
			if !strings.HasSuffix(sub.Use, " COMMAND") { // else it only names the commands below it
				all = append(all, sub)
			}
			all = append(all, commands(sub)...)
		}
	}
	return all
}

// prose returns a description, whose lists and tables are indented, as Markdown.
func prose(long string) string {
	var b strings.Builder
	listed := false
	for line := range strings.SplitSeq(long, "\n") {
		text, isList := strings.CutPrefix(line, "  ")
		if isList && !listed && !strings.HasSuffix(b.String(), "\n\n") {
			b.WriteString("\n")
		}
		if listed = isList; isList {
			b.WriteString("    " + text + "\n")
		} else {
			b.WriteString(cell(line) + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func describe(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n    %s\n\n%s\n", c.CommandPath(), c.UseLine(), prose(c.Long))
	if c.HasExample() {
		b.WriteString("\nExamples:\n\n")
		for line := range strings.Lines(c.Example) {
			b.WriteString(strings.TrimRight("  "+line, " \n") + "\n")
		}
	}
	if c.Name() == "serve" {
		b.WriteString("\nFlags: `--config FILE`, and all [options of a node](options.md).\n")
		return
	}
	if c.Name() == "doctor" || c.Name() == "healthcheck" {
		b.WriteString("\nFlags: all of `weir serve`, and\n")
	}
	flags := 0
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		_, ofServe := f.Value.(*flagText)
		if f.Hidden || f.Name == "help" || ofServe {
			return
		}
		if flags++; flags == 1 {
			b.WriteString("\n| flag | default | meaning |\n|---|---|---|\n")
		}
		name, usage := pflag.UnquoteUsage(f)
		flag := "--" + f.Name
		if f.Shorthand != "" {
			flag = "-" + f.Shorthand + ", " + flag
		}
		if name != "" {
			flag += " " + name
		}
		initial := f.DefValue
		switch before, after, found := strings.Cut(usage, " (default "); {
		case found:
			usage, initial = before, after[:strings.LastIndex(after, ")")]+after[strings.LastIndex(after, ")")+1:]
		case initial == "[]" || initial == "0" || f.Value.Type() == "bool":
			initial = ""
		case initial != "":
			initial = "`" + initial + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", flag, initial, cell(usage))
	})
}
