package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"

	// What the pages use: go test runs the tests again when it changes.
	_ "github.com/weirlimit/weir/client/embedded"
	_ "github.com/weirlimit/weir/client/grpclimit"
	_ "github.com/weirlimit/weir/client/httplimit"
)

// pages are those for users of clients, which begin with what to paste.
var pages = []string{"go.md", "python.md", "typescript.md", "migrate-from-gubernator.md"}

// fenced returns the blocks of a kind in a page, such as "go".
func fenced(t *testing.T, page, kind string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(text), "\n```"+kind+"\n") {
		block, _, _ := strings.Cut(part, "\n```\n")
		blocks = append(blocks, block+"\n")
	}
	return blocks[1:]
}

// Rules in pages are such.
func TestRulesInPages(t *testing.T) {
	for _, page := range pages {
		blocks := fenced(t, page, "yaml")
		if len(blocks) == 0 {
			t.Errorf("%s shows no rules", page)
		}
		for _, block := range blocks {
			if _, err := rules.Parse(page, []byte(block)); err != nil {
				t.Errorf("%v in\n%s", err, block)
			}
		}
	}
}

// Go code in pages compiles in a module of its own, as in a reader's, and its tests pass.
func TestGoInPages(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, strings.Replace(string(text), "module github.com/weirlimit/weir\n",
			"module shop\n\nrequire github.com/weirlimit/weir v0.0.0\n\nreplace github.com/weirlimit/weir => "+root+"\n", 1))
	}
	blocks := fenced(t, "go.md", "go")
	if len(blocks) < 5 {
		t.Fatalf("%d blocks of code", len(blocks))
	}
	for i, block := range blocks {
		name := "block.go"
		if strings.Contains(block, "*testing.T") {
			name = "block_test.go"
		}
		write(fmt.Sprintf("block%d/%s", i, name), block)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-mod=mod", "./...")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
