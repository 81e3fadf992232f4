package prose

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// CodePhrases are the phrases banned in comments and string literals of Go code and in comments of protocol
// files: those of the pages, and some that only code used.
var CodePhrases = slices.Concat(Phrases, []Phrase{
	phrase("nobody", `no one|someone|anyone`, "say which node, caller or operator"),
	phrase("beside", `besides?`, "in addition to, with"),
	phrase("let through", `let (?:\w+ )?(?:pass|through)`, "allowed, admitted"),
	phrase("who as a subject", `those who|the one who|(?:^|[.:(] ?)who`, "name the subject: the owner, the caller, the node"),
	phrase("colleague", `colleagues?`, "member, peer"),
})

// Passage is a comment or a string literal.
type Passage struct {
	Line int    // where it begins
	Text string // with single spaces
}

// GoPassages returns the comments and string literals of a Go file, in no particular order. A group of
// comment lines is one passage. Generated files have none.
func GoPassages(source []byte) ([]Passage, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	var all []Passage
	add := func(at token.Pos, text string) {
		all = append(all, Passage{files.Position(at).Line, strings.Join(strings.Fields(text), " ")})
	}
	for _, group := range file.Comments {
		add(group.Pos(), group.Text())
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				add(lit.Pos(), text)
			}
		}
		return true
	})
	return all, nil
}

// ProtoPassages returns the comments of a protocol file. Consecutive lines of comments are one passage.
func ProtoPassages(source []byte) (all []Passage) {
	last := -1 // the line of the latest comment
	for i, line := range strings.Split(string(source), "\n") {
		code, comment, found := strings.Cut(line, "//")
		if !found {
			continue
		}
		comment = strings.Join(strings.Fields(comment), " ")
		if whole := strings.TrimSpace(code) == ""; whole && last == i-1 && len(all) > 0 {
			all[len(all)-1].Text += " " + comment
		} else {
			all = append(all, Passage{i + 1, comment})
		}
		last = i
	}
	return all
}

// CodeProblems returns the banned phrases of passages: a line for each, and how often each phrase occurs.
func CodeProblems(passages []Passage) (problems []string, counts map[string]int) {
	counts = map[string]int{}
	for _, passage := range passages {
		for _, found := range banned(passage.Text, CodePhrases) {
			counts[found.Name]++
			problems = append(problems, fmt.Sprintf("line %d: %q (%s): %s", passage.Line, found.Text, found.Instead, passage.Text))
		}
	}
	return problems, counts
}
