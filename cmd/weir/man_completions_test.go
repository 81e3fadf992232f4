package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra/doc"
)

var extras = flag.String("extras", "", "write the man pages and the completions of shells to this directory, for packages")

// extrasDir returns a new directory in that of -extras, or else in one that is removed.
func extrasDir(t *testing.T, name string) string {
	t.Helper()
	dir := *extras
	if dir == "" {
		dir = t.TempDir()
	}
	dir = filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCompletions: bash, fish and zsh get completions that name the program.
func TestCompletions(t *testing.T) {
	dir := extrasDir(t, "completions")
	root := newApp(nil, os.Stdout, os.Stderr).rootCommand()
	for file, write := range map[string]func(io.Writer) error{
		"weir.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"weir.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
		"_weir":     root.GenZshCompletion,
	} {
		var text bytes.Buffer
		if err := write(&text); err != nil || !strings.Contains(text.String(), "weir") {
			t.Errorf("%s: %v, %s", file, err, text.String())
		}
		if err := os.WriteFile(filepath.Join(dir, file), text.Bytes(), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// TestManPages: every command has a man page with its description and its flags.
func TestManPages(t *testing.T) {
	dir := extrasDir(t, "man")
	root := newApp(nil, os.Stdout, os.Stderr).rootCommand()
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Weir", Manual: "Weir"}, dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range commands(root) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS", ".SH EXAMPLE"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s lacks %s", name, want)
			}
		}
	}
}
