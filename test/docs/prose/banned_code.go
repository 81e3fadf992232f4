package prose

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// freeWho finds a sentence, or a part of one after a colon, a semicolon or a parenthesis, that begins with
// "who" and is no question.
var freeWho = regexp.MustCompile(`(?i)(?:^|[.:;(!?]\s*)(who)[^\p{L}.?!:;()][^.?!:;()]*(?:[.!:;()]|$)`)

// CodePhrases are the phrases banned in comments and string literals of code and in comments of protocol
// files and of YAML: those of the pages, and some that only code used.
var CodePhrases = slices.Concat(Phrases, []Phrase{
	phrase("nobody", `no one|someone|anyone`, "say which node, caller or operator"),
	phrase("beside", `besides?`, "in addition to, with"),
	phrase("let through", `let (?:\w+ )?(?:pass|through)`, "allowed, admitted"),
	phrase("who as a subject", `those who|the one who`, "name the subject: the owner, the caller, the node"),
	{"who as a subject", freeWho, "name the subject: the owner, the caller, the node"},
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
func ProtoPassages(source []byte) []Passage { return commentPassages(source, "//") }

// TypeScriptPassages returns the comments of a TypeScript file, and the string literals that end on their line.
func TypeScriptPassages(source []byte) []Passage {
	lines := blockComment.ReplaceAllStringFunc(string(source), func(comment string) string {
		return "//" + strings.ReplaceAll(strings.Trim(comment, "/*"), "\n", "\n//")
	})
	return append(commentPassages([]byte(lines), "//"), literalPassages(source)...)
}

// PythonPassages returns the comments and docstrings of a Python file, and the string literals that end on their line.
func PythonPassages(source []byte) []Passage {
	lines := docstring.ReplaceAllStringFunc(string(source), func(text string) string {
		return "# " + strings.ReplaceAll(strings.Trim(text, `"`), "\n", "\n# ")
	})
	return append(commentPassages([]byte(lines), "#"), literalPassages(source)...)
}

// ShellPassages returns the comments of a shell script, and the string literals that end on their line.
func ShellPassages(source []byte) []Passage {
	return append(commentPassages(source, "#"), literalPassages(source)...)
}

// YAMLPassages returns the comments of a YAML file.
func YAMLPassages(source []byte) []Passage { return commentPassages(source, "#") }

var (
	blockComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	docstring    = regexp.MustCompile(`(?s)""".*?"""`)
	literal      = regexp.MustCompile("\"(?:[^\"\\\\\n]|\\\\.)*\"|'(?:[^'\\\\\n]|\\\\.)*'|`[^`\n]*`")
)

// commentPassages returns the comments that begin with a mark and end with their line. Consecutive lines of
// comments are one passage; so are a comment behind code and the lines below it.
func commentPassages(source []byte, mark string) (all []Passage) {
	last := -1 // the line of the latest comment
	for i, line := range strings.Split(string(source), "\n") {
		code, comment, found := strings.Cut(line, mark)
		if !found {
			continue
		}
		comment = strings.Join(strings.Fields(strings.TrimLeft(comment, "* ")), " ")
		if whole := strings.TrimSpace(code) == ""; whole && last == i-1 && len(all) > 0 {
			all[len(all)-1].Text += " " + comment
		} else {
			all = append(all, Passage{i + 1, comment})
		}
		last = i
	}
	return all
}

// literalPassages returns the string literals that end on the line on which they begin.
func literalPassages(source []byte) (all []Passage) {
	for i, line := range strings.Split(string(source), "\n") {
		for _, text := range literal.FindAllString(line, -1) {
			all = append(all, Passage{i + 1, text[1 : len(text)-1]})
		}
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
