package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra/doc"
)

var man = flag.String("man", "", "write the man pages to this directory, for packages")

// TestManPages: every command has a man page with its description and its flags.
func TestManPages(t *testing.T) {
	dir := *man
	if dir == "" {
		dir = t.TempDir()
	}
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
