package rules

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules/envoy"
	"github.com/weirlimit/weir/rules/internal/problem"
	"github.com/weirlimit/weir/rules/internal/yamlnode"
)

// Load reads the rules in a file, or in the YAMLFiles of a directory, in the order of
// their names. Symbolic links are followed. An empty path means no rules. A file of the
// directory that is not read is one of the set's Warnings.
//
// The error is a *LoadError with the problems of all files; errors.Is sees what
// the file system said. A file without a document and a directory without a file
// are errors, so that a truncated file or a volume that is not there yet does not
// look like "no rules". A file that wants none says rules: [].
//
// A document with descriptors instead of rules is one of envoyproxy/ratelimit, and means
// what it means there.
func Load(path string) (*Set, error) {
	return Options{}.load(readFiles(path, YAMLFiles))
}

// Parse reads the rules in data. name stands for the file in messages.
func Parse(name string, data []byte) (*Set, error) { return Options{}.Parse(name, data) }

// Options say how files are read. The zero value is how Load and Parse do it.
type Options struct {
	// Files are those of a directory that hold rules.
	Files Files
	// Envoy says how documents of envoyproxy/ratelimit are read.
	Envoy envoy.Options
}

// Parse is Parse for files that are read in another way.
func (how Options) Parse(name string, data []byte) (*Set, error) {
	return how.load([]fileContent{{name: name, data: data, err: checkSize(len(data))}}, nil)
}

// fileContent is a file's content, or why it could not be read.
type fileContent struct {
	name string
	data []byte
	err  error
}

// loader gathers what files hold.
type loader struct {
	problems     problem.List
	rules        []*Rule
	byName       map[ruleName]*Rule
	references   []reference
	attributes   map[string]string // names by themselves
	regexpBudget int               // bytes left; negative if used up
	calendars    map[*algorithms.Calendar]bool
	domains      []string // of the documents, except for those of envoyproxy/ratelimit

	stored    bool // the rules stand in etcd already
	how       Options
	envoy     *envoy.Reader
	described map[string]*Descriptors // what envoy has read, by domain
	warnings  problem.List
}

type ruleName struct{ domain, id string }

func newLoader(how Options) *loader {
	l := &loader{
		byName: make(map[ruleName]*Rule), attributes: make(map[string]string),
		calendars: make(map[*algorithms.Calendar]bool), regexpBudget: maxRegexpMemory,
		how: how, described: make(map[string]*Descriptors),
	}
	l.envoy = envoy.NewReader(how.Envoy, &l.problems, &l.warnings, how.Files.hintOfDots)
	return l
}

// load makes a set of what was read, and a warning of each file that was not.
func (how Options) load(sources []fileContent, unread []Problem) (*Set, error) {
	l := newLoader(how)
	l.files(sources, unread)
	return l.set()
}

func (l *loader) files(sources []fileContent, unread []Problem) {
	for _, p := range unread {
		l.warnings.Add(p)
	}
	for _, src := range sources {
		if src.err != nil {
			l.problems.Add(Problem{File: src.name, Message: trimPath(src.err), Cause: src.err})
			continue
		}
		l.file(src)
	}
}

// set returns the Set of all rules if there was no problem.
func (l *loader) set() (*Set, error) {
	l.link()
	l.oneKind()
	if err := l.problems.Err(); err != nil {
		return nil, err
	}
	s := newSet(l.rules)
	s.describe(l.how, l.described)
	s.warnings = l.warnings.Sorted()
	return s, nil
}

// oneKind refuses domains that have both rules and descriptors.
func (l *loader) oneKind() {
	told := make(map[string]bool)
	for _, r := range l.rules {
		other := l.described[r.Domain]
		if r.Descriptor != nil || other == nil || told[r.Domain] {
			continue
		}
		told[r.Domain] = true
		l.problems.Add(Problem{
			File: r.file, Line: r.line, Column: r.column, Rule: r.ID,
			Message: fmt.Sprintf("domain %s has descriptors too%s; a domain has either rules or descriptors", problem.Quote(r.Domain), other.tree.Place()),
		})
	}
}

// file reads one file's documents, up to the first that is not YAML.
func (l *loader) file(src fileContent) {
	d := &decoder{loader: l, file: src.name}
	yamls := yaml.NewDecoder(bytes.NewReader(src.data))
	for documents := 0; ; documents++ {
		var n yaml.Node
		switch err := next(yamls, &n); {
		case errors.Is(err, io.EOF):
			if documents == 0 {
				d.problem(&yaml.Node{Line: 1, Column: 1}, problem.Path{}, "the file is empty; for no rules, write {domain: default, rules: []}")
			}
			return
		case err != nil:
			l.problems.Add(SyntaxProblem(src.name, src.data, err))
			return
		}
		if yamlnode.IsNull(n.Content[0]) {
			d.problem(&n, problem.Path{}, "the document is empty; write domain and rules, or leave out its ---")
			continue
		}
		d.document(n.Content[0], problem.Path{})
	}
}

// addRule takes in one rule, once it has its domain.
func (l *loader) addRule(r *Rule) {
	refuse := func(message string) {
		l.problems.Add(Problem{File: r.file, Line: r.line, Column: r.column, Rule: r.ID, Message: message})
	}
	name := ruleName{r.Domain, r.ID}
	switch other := l.byName[name]; {
	case r.ID == "" || r.Domain == "":
		return // reported as such
	case other != nil:
		refuse(fmt.Sprintf("domain %s has a rule of this id already%s", problem.Quote(r.Domain), other.place()))
		return
	case len(l.rules) == maxRules:
		refuse(fmt.Sprintf("is one more than the %d rules that a set may have", maxRules))
		return
	}
	l.byName[name] = r
	l.rules = append(l.rules, r)
}

// LoadDocuments reads what Load does from each path, or from stdin if it is StandardInput,
// as one set. It returns documents: one per domain, those without rules included, which a
// Set does not know. The warnings are those of Set.Warnings, and are there with an error as well.
func (how Options) LoadDocuments(stdin io.Reader, paths ...string) ([]Document, []Problem, error) {
	var sources []fileContent
	var unread []Problem
	total := 0
	for i, path := range paths {
		var read []fileContent
		switch {
		case slices.Contains(paths[:i], path):
			read = []fileContent{{name: path, err: errors.New("is given twice")}}
		case path == StandardInput:
			data, err := io.ReadAll(io.LimitReader(stdin, maxFileSize+1))
			read = []fileContent{{name: "standard input", data: data, err: cmp.Or(err, checkSize(len(data)))}}
		default:
			var others []Problem
			read, others = readFiles(path, how.Files)
			unread = append(unread, others...)
		}
		for _, src := range read {
			total += len(src.data)
		}
		sources = append(sources, read...)
	}
	if total > maxTotalSize {
		sources = []fileContent{{name: strings.Join(paths, ", "), err: fmt.Errorf("the files have more than %d bytes together", maxTotalSize)}}
	}
	return how.documents(sources, unread)
}

// ParseDocuments reads what Parse does, and returns it as LoadDocuments does.
func (how Options) ParseDocuments(name string, data []byte) ([]Document, []Problem, error) {
	return how.documents([]fileContent{{name: name, data: data, err: checkSize(len(data))}}, nil)
}

func (how Options) documents(sources []fileContent, unread []Problem) ([]Document, []Problem, error) {
	l := newLoader(how)
	l.files(sources, unread)
	set, err := l.set()
	if err != nil {
		return nil, l.warnings.Sorted(), err
	}
	var docs []Document
	for _, domain := range l.domains {
		docs = append(docs, Document{Domain: domain})
	}
	return group(append(docs, set.Documents()...)).documents(), set.Warnings(), nil
}

// StandardInput is the path that stands for what a program is given to read.
const StandardInput = "-"
