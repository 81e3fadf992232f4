package prose

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// pages returns all pages of the repository that the rules are for, as paths from its root.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "client/python/README.md", "client/typescript/README.md"}
	err := fs.WalkDir(os.DirFS(root), "docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPages(t *testing.T) {
	all := pages(t)
	for _, path := range all {
		t.Run(path, func(t *testing.T) {
			source, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range Parse(source).Problems() {
				t.Error(p)
			}
		})
	}
}

func TestSentences(t *testing.T) {
	for _, tc := range []struct {
		markdown string
		want     []string
	}{
		{"One. Two!\nThree (four). \"Five.\" Six\n", []string{"One.", "Two!", "Three (four).", `"Five."`, "Six"}},
		{"A limit, e.g. ten, i.e. few. Next.", []string{"A limit, e.g. ten, i.e. few.", "Next."}},
		{"Use `weir serve --rules x.yaml. y` at 1.5 s.", []string{"Use CODE at 1.5 s."}},
		{"Two kinds:\n\n- the *owner* decides\n- a [link](https://example.com/a.b) ends\n", []string{"Two kinds:", "the owner decides", "a link ends"}},
		{"# A heading. No sentence\n\n| a cell. | b |\n|---|---|\n| c. d | e |\n\n    code. block\n", nil},
	} {
		if got := Parse([]byte(tc.markdown)).Sentences; !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, not %q", tc.markdown, got, tc.want)
		}
	}
}

func TestProblems(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("word ", MaxWords+1))
	lengthy := strings.TrimSpace(strings.Repeat("word ", MeanWords+1))
	for _, tc := range []struct{ markdown, want string }{
		{"The owner decides.", ""},
		{"Short.\n\n" + strings.Repeat("Short. ", 20) + long, "36 words, more than 35"},
		{"| a | b |\n|---|---|\n| Short. " + long + " | |\n", "36 words, more than 35"},
		{lengthy + ". " + lengthy + ".", "21.0 words on average"},
		{"Nobody decides.", `"Nobody"`},
		{"| the node that somebody stops |\n|---|\n", `"somebody"`},
		{"# Whoever asks\n", `"Whoever"`},
		{"The word `anew` as code.", ""},
		{"A bystander decides anewly.", ""},
		{"It falls to who is first, and who has it decides.", `"and who has"`},
		{"Who may decide? The owner.", ""},
		{strings.Repeat("A line.\n\n", 76), "without a heading Contents"},
		{"# Title\n\nText.\n\n## Contents\n\n" + strings.Repeat("A line.\n\n", 76), ""},
		{"# Title\n\n    code\n\n## Contents\n", "Contents does not stand right after"},
		{"# Title\n\n## Part\n\nText.\n\n## Contents\n", "Contents does not stand right after"},
	} {
		got := strings.Join(Parse([]byte(tc.markdown)).Problems(), "\n")
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%q: %q, not %q", tc.markdown, got, tc.want)
		}
	}
}
