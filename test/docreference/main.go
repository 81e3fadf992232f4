// Command docreference writes the tables of the documentation that say what the code declares:
// the algorithms in docs/algorithms.md and docs/reference/rules.md, the keys of rules in docs/reference/rules.md, and the
// methods of the API in docs/reference/http.md. Its tests name the places where one of them is missing.
//
//	go run ./test/docreference
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirlimit/weir/test/docs/docwriter"
)

//go:generate go run . -C ../..

// generator stands in the markers of what it writes, with the name of a block.
const generator = "go run ./test/docreference"

// api is the directory of the protocol.
const api = "api/weir/v1"

// block is one part of a page that is written.
type block struct {
	page, name string
	write      func() ([]byte, error)
}

var blocks = []block{
	{"algorithms.md", "algorithms", compareAlgorithms},
	{"reference/rules.md", "algorithms", chooseAlgorithms},
	{"reference/http.md", "endpoints", writeEndpoints},
	{"reference/rules.md", "document", writeKeys("document")},
	{"reference/rules.md", "rule", writeKeys("rule")},
	{"reference/rules.md", "limit", writeKeys("limit")},
	{"reference/rules.md", "condition", writeKeys("condition")},
	{"reference/rules.md", "calendar", writeKeys("calendar")},
	{"reference/rules.md", "mode", writeKeys("mode", "soft", "elastic")},
}

func main() {
	root := flag.String("C", ".", "root of the repository")
	flag.Parse()
	if err := os.Chdir(*root); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
	for _, b := range blocks {
		if err := b.update("docs"); err != nil {
			fmt.Fprintln(os.Stderr, "reference:", err)
			os.Exit(1)
		}
	}
}

// update writes a block into its page in a directory.
func (b block) update(dir string) error {
	file := filepath.Join(dir, b.page)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if text, err = b.replace(text); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, text, 0o644)
}

// replace returns the text of a page with the block as it should be.
func (b block) replace(text []byte) ([]byte, error) {
	table, err := b.write()
	if err != nil {
		return nil, err
	}
	table = append([]byte("\n"), table...)
	return docwriter.Replace(text, generator+": "+b.name, append(table, '\n'))
}
