package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/algorithms"
)

const pages = "docs"

// atRoot has a test run in the root of the module. A change of the directory before the tests, as in TestMain, would hide
// from go test which files they read, and the result that it keeps would not expire with them.
func atRoot(t *testing.T) {
	t.Helper()
	t.Chdir("../..")
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPagesAreCurrent(t *testing.T) {
	atRoot(t)
	for _, b := range blocks {
		text := read(t, pages, b.page)
		want, err := b.replace(text)
		if err != nil {
			t.Errorf("docs/%s: %v", b.page, err)
		} else if !bytes.Equal(text, want) {
			t.Errorf("docs/%s: the table %q is not current; run make generate", b.page, b.name)
		}
	}
}

func TestAlgorithmsAreDocumented(t *testing.T) {
	atRoot(t)
	page, proto := read(t, pages, "algorithms.md"), string(read(t, "api/weir/v1/config.proto"))
	before, _, found := strings.Cut(proto, "  string algorithm = 6;")
	if !found {
		t.Fatal("config.proto has no field Limit.algorithm")
	}
	comment := before[strings.LastIndex(before, ";\n"):]
	_, meet, _ := strings.Cut(string(page), "\n## When two counts meet\n")
	meet, _, _ = strings.Cut(meet, "\n## ")
	_, glossary, _ := strings.Cut(string(read(t, pages, "glossary.md")), "\nThe algorithms are ")
	glossary, _, _ = strings.Cut(glossary, "\n\n")
	for _, a := range algorithms.All() {
		name := a.String()
		for _, part := range []string{"\n## " + name + "\n", "\n- [" + name + "](#" + name + ")\n", "\n![" + name + "](algorithms/" + name + ".svg)\n"} {
			if !bytes.Contains(page, []byte(part)) {
				t.Errorf("%s: missing in docs/algorithms.md: %s", name, strings.TrimSpace(part))
			}
		}
		if !regexp.MustCompile("(?m)^\\|[^|]*`" + name + "`[^|]*\\|").MatchString(meet) {
			t.Errorf("%s: has no row below \"When two counts meet\" in docs/algorithms.md", name)
		}
		if !strings.Contains(glossary, "`"+name+"`") {
			t.Errorf("%s: missing in the paragraph of docs/glossary.md that begins with \"The algorithms are\"", name)
		}
		if !strings.Contains(comment, `"`+name+`"`) {
			t.Errorf("%s: missing in the comment of Limit.algorithm, in api/weir/v1/config.proto", name)
		}
	}
}
