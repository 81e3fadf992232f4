// Package prose measures how plainly a page of documentation is written: how long its sentences are, and
// which phrases it uses that Weir's pages avoid.
package prose

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// Bounds of a page's sentences, in words.
const (
	MaxWords  = 35 // of one sentence
	MeanWords = 20 // of all sentences of a page, on average
)

// contentsFrom is how many lines a page may have without a list of contents.
const contentsFrom = 150

// Page is one page of Markdown, as far as its prose is concerned.
type Page struct {
	// Sentences of paragraphs and list items. Code is one word, and blocks of code and headings
	// have none.
	Sentences []string
	// Cells are the sentences in cells of tables.
	Cells []string
	// Texts are the sentences, the headings and the cells of tables.
	Texts []string
	// Lines of the file.
	Lines int
	// Contents reports whether a heading says "Contents".
	Contents bool
	// Early reports whether only the title and paragraphs stand before that heading.
	Early bool
}

// Parse reads a page.
func Parse(source []byte) Page {
	page := Page{Lines: strings.Count(string(source), "\n")}
	root := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	// The callback returns no error, so Walk does not either.
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n.Kind() {
		case ast.KindParagraph, ast.KindTextBlock:
			page.add(inline(n, source), true)
		case ast.KindHeading:
			heading := inline(n, source)
			if heading == "Contents" {
				page.Contents, page.Early = true, onlyParagraphsBefore(n)
			}
			page.add(heading, false)
		case extast.KindTableCell:
			cell := inline(n, source)
			page.add(cell, false)
			page.Cells = append(page.Cells, sentences(cell)...)
		default:
			return ast.WalkContinue, nil
		}
		return ast.WalkSkipChildren, nil
	})
	return page
}

// onlyParagraphsBefore reports whether nothing but one heading, paragraphs and comments stands before a heading.
func onlyParagraphsBefore(n ast.Node) bool {
	headings := 0
	for n = n.PreviousSibling(); n != nil; n = n.PreviousSibling() {
		switch n.Kind() {
		case ast.KindHeading:
			headings++
		case ast.KindParagraph, ast.KindHTMLBlock:
		default:
			return false
		}
	}
	return headings == 1
}

func (p *Page) add(text string, prose bool) {
	if !prose {
		p.Texts = append(p.Texts, text)
		return
	}
	all := sentences(text)
	p.Texts, p.Sentences = append(p.Texts, all...), append(p.Sentences, all...)
}

// inline returns the text of a block, with every piece of code as one word.
func inline(n ast.Node, source []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.CodeSpan:
			b.WriteString("CODE")
		case *ast.Text:
			b.Write(c.Segment.Value(source))
			if c.SoftLineBreak() || c.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(c.Value)
		case *ast.RawHTML: // an anchor or a comment
		default:
			b.WriteString(inline(c, source))
		}
	}
	return strings.TrimSpace(b.String())
}

// boundary is where a sentence ends: a stop, closing marks, a space.
var boundary = regexp.MustCompile(`[.!?]["”)\]]*\s+|:\s+`)

// abbreviations end with a stop that ends no sentence.
var abbreviations = regexp.MustCompile(`\b(e\.g|i\.e|etc|cf|vs)\.\s+$`)

// sentences splits a text. A colon ends one as well: what follows it is a list, an
// example, or a sentence of its own.
func sentences(text string) (all []string) {
	start := 0
	for _, at := range boundary.FindAllStringIndex(text, -1) {
		if abbreviations.MatchString(text[:at[1]]) {
			continue
		}
		all = appendSentence(all, text[start:at[1]])
		start = at[1]
	}
	return appendSentence(all, text[start:])
}

func appendSentence(all []string, s string) []string {
	if s = strings.TrimSpace(s); Words(s) > 0 {
		all = append(all, s)
	}
	return all
}

var word = regexp.MustCompile(`[\p{L}\p{N}][\p{L}\p{N}'’_./%-]*`)

// Words counts the words of a sentence.
func Words(sentence string) int { return len(word.FindAllString(sentence, -1)) }

// Mean returns how many words the page's sentences have on average, 0 if there are none.
func (p Page) Mean() float64 {
	if len(p.Sentences) == 0 {
		return 0
	}
	total := 0
	for _, s := range p.Sentences {
		total += Words(s)
	}
	return float64(total) / float64(len(p.Sentences))
}

// Problems returns what is wrong with the page, a sentence for each.
func (p Page) Problems() (problems []string) {
	if mean := p.Mean(); mean > MeanWords {
		problems = append(problems, fmt.Sprintf("sentences have %.1f words on average, more than %d", mean, MeanWords))
	}
	for _, s := range slices.Concat(p.Sentences, p.Cells) {
		if n := Words(s); n > MaxWords {
			problems = append(problems, fmt.Sprintf("%d words, more than %d: %s", n, MaxWords, s))
		}
	}
	for _, text := range p.Texts {
		for _, found := range Banned(text) {
			problems = append(problems, fmt.Sprintf("%q (%s): %s", found.Text, found.Instead, text))
		}
	}
	if p.Lines > contentsFrom && !p.Contents {
		problems = append(problems, fmt.Sprintf("%d lines, more than %d, without a heading Contents", p.Lines, contentsFrom))
	}
	if p.Contents && !p.Early {
		problems = append(problems, "the heading Contents does not stand right after the first paragraphs")
	}
	return problems
}
