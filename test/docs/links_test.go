package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Links and headings of a page, outside of blocks of code.
var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#+ (.*)$`)
)

// TestLinks: the pages that a page links to exist, and have the headings that it links to.
func TestLinks(t *testing.T) {
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "client/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) < 20 {
		t.Fatalf("found only %q", all)
	}
	for _, page := range all {
		for _, target := range links(t, page) {
			path, anchor, _ := strings.Cut(target, "#")
			if strings.Contains(target, "://") {
				continue
			}
			linked := page
			if path != "" {
				linked = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(linked); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, target)
			} else if anchor != "" && !anchors(t, linked)[anchor] {
				t.Errorf("%s links to %s, which has no such heading", page, target)
			}
		}
	}
}

// text returns the lines of a page outside of blocks of code.
func text(t *testing.T, page string) (lines []string) {
	t.Helper()
	source, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	code := false
	for line := range strings.SplitSeq(string(source), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code && !strings.HasPrefix(line, "    ") {
			lines = append(lines, line)
		}
	}
	return lines
}

func links(t *testing.T, page string) (targets []string) {
	t.Helper()
	for _, m := range link.FindAllStringSubmatch(strings.Join(text(t, page), "\n"), -1) {
		targets = append(targets, m[1])
	}
	return targets
}

// anchors returns those of a page's headings, as GitHub makes them: lower case, without
// punctuation, spaces as dashes.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	for _, line := range text(t, page) {
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		all[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
				return r
			}
			return -1
		}, strings.ToLower(m[1]))] = true
	}
	return all
}

// TestIndexListsPages: docs/README.md lists every page.
func TestIndexListsPages(t *testing.T) {
	const root = "../../docs"
	listed := links(t, filepath.Join(root, "README.md"))
	for _, pattern := range []string{"*.md", "reference/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range found {
			page = strings.TrimPrefix(page, root+"/")
			if page != "README.md" && !slices.Contains(listed, page) {
				t.Errorf("docs/README.md does not list %s", page)
			}
		}
	}
}
