package docs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	markdown "github.com/yuin/goldmark/text"
)

// glossaryPage is not held to itself.
const glossaryPage = "docs/glossary.md"

// strangeTerms are those that a reader cannot know from elsewhere. A page explains each of them by a link to its part of
// the glossary where the page first uses it, or all of them by a link to the whole glossary before that.
var strangeTerms = []string{
	"breaker", "conn", "decision lease", "delta", "denial lease", "drain", "failover", "feed", "final state", "frame", "handover", "incarnation", "learner", "lent", "owner", "partition", "predecessor", "promotion", "provisional",
	"relay", "redirect", "replica", "shard", "standby", "token lease", "undecided", "view", "witness",
}

var strangeTermPattern = regexp.MustCompile(`(?i)\b(` + strings.Join(strangeTerms, "|") + `)(?:s|es)?\b`)

// otherSense finds words that are no terms: the owner of a file.
var otherSense = regexp.MustCompile(`(?i)only (?:its|their) owner|(?:its|their) owner (?:can|only)|owner of the directory`)

// TestPagesLinkTheGlossary: each page explains the terms that it uses by links to the glossary.
func TestPagesLinkTheGlossary(t *testing.T) {
	glossary := readPage(t, glossaryPage)
	sections := glossarySections(glossary)
	if len(sections) < 60 {
		t.Fatalf("the glossary has only %d terms", len(sections))
	}
	sections["provisional"] = sections["provisional grant"]
	for _, term := range strangeTerms {
		if sections[term] == "" {
			t.Errorf("%s does not explain %q", glossaryPage, term)
		}
	}
	checked := 0
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/*/*.md", "docs/operations/alerts/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			page := strings.TrimPrefix(filepath.ToSlash(file), root+"/")
			if page == glossaryPage {
				continue
			}
			checked++
			source := readPage(t, page)
			if !strings.HasPrefix(page, "docs/adr/") && !strings.Contains(string(source), "glossary.md") {
				t.Errorf("%s does not link to the glossary", page)
			}
			for _, problem := range glossaryProblems(source, sections) {
				t.Errorf("%s %s", page, problem)
			}
		}
	}
	if checked < 100 {
		t.Fatalf("checked only %d pages", checked)
	}
}

func readPage(t *testing.T, page string) []byte {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// span is a part of a page's text, and where it links to, if it does.
type span struct{ text, link string }

// spans returns the text of a page, without headings and code.
func spans(source []byte) (all []span) {
	page := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(markdown.NewReader(source))
	add := func(s string) {
		if last := len(all) - 1; last >= 0 && all[last].link == "" {
			all[last].text += s
		} else {
			all = append(all, span{text: s})
		}
	}
	// The callback returns no error, so Walk does not either.
	_ = ast.Walk(page, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Heading, *ast.CodeSpan:
			if entering {
				add("\n")
			}
			return ast.WalkSkipChildren, nil
		case *ast.Link:
			if entering {
				all = append(all, span{linkText(n, source), string(n.Destination)})
			}
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			if entering {
				add(string(n.Segment.Value(source)))
				if n.SoftLineBreak() {
					add(" ")
				}
			}
		case *ast.Paragraph, *ast.TextBlock, *extast.TableCell:
			if entering {
				add("\n")
			}
		}
		return ast.WalkContinue, nil
	})
	return all
}

func linkText(n ast.Node, source []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, isText := c.(*ast.Text); isText {
			b.Write(t.Segment.Value(source))
		} else {
			b.WriteString(linkText(c, source))
		}
		if t, isText := c.(*ast.Text); isText && t.SoftLineBreak() {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// glossarySections returns the anchor of the part of the glossary in which each of its terms stands.
func glossarySections(source []byte) map[string]string {
	sections := make(map[string]string)
	anchor := ""
	for line := range strings.SplitSeq(string(source), "\n") {
		if name, isHeading := strings.CutPrefix(line, "## "); isHeading {
			anchor = strings.ReplaceAll(strings.ToLower(name), " ", "-")
		} else if row, isRow := strings.CutPrefix(line, "| "); isRow && row != "word | meaning |" {
			terms, _, _ := strings.Cut(row, " | ")
			for term := range strings.SplitSeq(terms, ", ") {
				sections[term] = anchor
			}
		}
	}
	return sections
}

// glossaryProblems returns what is wrong with a page's links to the glossary, a sentence for each.
func glossaryProblems(source []byte, sections map[string]string) (problems []string) {
	explained, linked, whole := make(map[string]bool), make(map[string]bool), false
	for _, s := range spans(source) {
		target, anchor, hasAnchor := strings.Cut(s.link, "#")
		switch {
		case s.link == "":
			for _, term := range termsOf(s.text) {
				if !explained[term] && !whole {
					problems = append(problems, fmt.Sprintf("uses %q before a link explains it: %s", term, around(s.text, term)))
				}
				explained[term] = true
			}
		case path.Base(target) != path.Base(glossaryPage):
		case !hasAnchor:
			whole = true
			if !strings.EqualFold(s.text, "glossary") {
				problems = append(problems, fmt.Sprintf("links %q to the whole glossary", s.text))
			}
		default:
			problems = append(problems, badLinks(s.text, anchor, sections, linked)...)
			for _, term := range termsOf(s.text) {
				explained[term] = true
			}
		}
	}
	return problems
}

// badLinks returns what is wrong with a link of terms to a part of the glossary, and adds them to those that are linked.
func badLinks(text, anchor string, sections map[string]string, linked map[string]bool) (problems []string) {
	terms := termsOf(text)
	if len(terms) == 0 {
		terms = []string{strings.TrimSuffix(strings.ToLower(text), "s")}
	}
	for _, term := range terms {
		if linked[term] {
			problems = append(problems, fmt.Sprintf("links the term %q to the glossary more than once", term))
		}
		linked[term] = true
		if want := sections[term]; want != "" && want != anchor {
			problems = append(problems, fmt.Sprintf("links the term %q to #%s, and it is in #%s", term, anchor, want))
		}
	}
	return problems
}

// termsOf returns the strange terms that a text uses, each as often as it does.
func termsOf(text string) (terms []string) {
	text = otherSense.ReplaceAllString(text, "")
	for _, m := range strangeTermPattern.FindAllStringSubmatch(text, -1) {
		terms = append(terms, strings.ToLower(m[1]))
	}
	return terms
}

// around returns the words around the first use of a term.
func around(text, term string) string {
	text = otherSense.ReplaceAllString(text, "")
	at := strings.Index(strings.ToLower(text), term)
	return strings.Join(strings.Fields(strings.ToValidUTF8(text[max(0, at-50):min(len(text), at+50)], "")), " ")
}

func TestGlossaryProblems(t *testing.T) {
	sections := glossarySections([]byte("## Limits\n\n| word | meaning |\n|---|---|\n| check | one request |\n\n## The right to decide\n\n| scatter, owner | it decides |\n"))
	const link = "An [owner](../glossary.md#the-right-to-decide) decides. "
	for text, want := range map[string]string{
		"No term.": "",
		link:       "",
		link + "The owners do. The file is for its owner only.":                  "",
		"The words are those of the [glossary](glossary.md). The owner decides.": "",
		"# The owner\n\n`the owner`, and [the owner](protocol.md)":               "",
		"The owner decides. " + link:                                             `"owner" before a link explains it: The owner decides`,
		"| Owners |\n|---|\n| x |\n":                                             `"owner" before`,
		"The owner. The [glossary](glossary.md).":                                `"owner" before`,
		link + "A standby and a token\nlease.":                                   `"token lease" before`,
		link + "[Owners](glossary.md#the-right-to-decide)":                       `"owner" to the glossary more than once`,
		"An [owner](glossary.md#limits)":                                         `"owner" to #limits, and it is in #the-right-to-decide`,
		"A [check](glossary.md#the-right-to-decide)":                             `"check" to #the-right-to-decide, and it is in #limits`,
		"An [owner](glossary.md)":                                                `links "owner" to the whole glossary`,
	} {
		got := strings.Join(glossaryProblems([]byte(text), sections), "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
}
