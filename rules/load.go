package rules

import (
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir/algorithms"
)

// Load reads the rules in a file, or in all *.yaml and *.yml files that stand
// directly in a directory, in the order of their names. Names that begin with a
// dot are passed over, symbolic links followed. An empty path means no rules.
//
// The error is a *LoadError with the problems of all files; errors.Is sees what
// the file system said. A file without a document and a directory without a file
// are errors, so that a truncated file or a volume that is not there yet does not
// look like "no rules". A file that wants none says rules: [].
//
// A document with descriptors instead of rules is one of envoyproxy/ratelimit, and means
// what it means there.
func Load(path string) (*Set, error) {
	return load(readFiles(path), Lyft{})
}

// Parse reads the rules in data. name stands for the file in messages.
func Parse(name string, data []byte) (*Set, error) { return Lyft{}.Parse(name, data) }

// Parse is Parse for those who read files of envoyproxy/ratelimit in another way.
func (how Lyft) Parse(name string, data []byte) (*Set, error) {
	return load([]source{{name: name, data: data, err: checkSize(len(data))}}, how)
}

// source is a file's content, or why it could not be read.
type source struct {
	name string
	data []byte
	err  error
}

// loader gathers what files hold.
type loader struct {
	problems     problems
	rules        []*Rule
	byName       map[ruleName]*Rule
	references   []reference
	attributes   map[string]string // names by themselves
	regexpBudget int               // bytes left; negative if used up
	calendars    map[*algorithms.Calendar]bool
	domains      []string // of the documents, but for those of envoyproxy/ratelimit

	how         Lyft
	descriptors map[string]*Descriptors // by domain
	nodes       int                     // descriptors, and values of their metadata
	visits      int                     // elements of mappings and lists that were read for them
	warnings    problems
}

type ruleName struct{ domain, id string }

func newLoader(how Lyft) *loader {
	return &loader{
		byName: make(map[ruleName]*Rule), attributes: make(map[string]string),
		calendars: make(map[*algorithms.Calendar]bool), regexpBudget: maxRegexpMemory,
		how: how, descriptors: make(map[string]*Descriptors),
	}
}

func load(sources []source, how Lyft) (*Set, error) {
	l := newLoader(how)
	l.files(sources)
	return l.set()
}

func (l *loader) files(sources []source) {
	for _, src := range sources {
		if src.err != nil {
			l.problems.add(Problem{File: src.name, Message: trimPath(src.err), cause: src.err})
			continue
		}
		l.file(src)
	}
}

// set returns the Set of all rules if there was no problem.
func (l *loader) set() (*Set, error) {
	l.link()
	l.oneKind()
	if err := l.problems.err(); err != nil {
		return nil, err
	}
	s := newSet(l.rules)
	s.describe(l.how, l.descriptors)
	s.warnings = l.warnings.sorted()
	return s, nil
}

// oneKind refuses domains that have both rules and descriptors.
func (l *loader) oneKind() {
	told := make(map[string]bool)
	for _, r := range l.rules {
		other := l.descriptors[r.Domain]
		if r.Descriptor != nil || other == nil || told[r.Domain] {
			continue
		}
		told[r.Domain] = true
		l.problems.add(Problem{
			File: r.file, Line: r.line, Column: r.column, Rule: r.ID,
			Message: fmt.Sprintf("domain %s has descriptors too%s; a domain has either rules or descriptors", quote(r.Domain), other.place()),
		})
	}
}

// file reads one file's documents, up to the first that is not YAML.
func (l *loader) file(src source) {
	d := &decoder{loader: l, file: src.name}
	text := &lineReader{rest: src.data}
	yamls := yaml.NewDecoder(text)
	for documents := 0; ; documents++ {
		var n yaml.Node
		switch err := next(yamls, &n); {
		case errors.Is(err, io.EOF):
			if documents == 0 {
				d.problem(&yaml.Node{Line: 1, Column: 1}, path{}, "the file is empty; for no rules, write {domain: default, rules: []}")
			}
			return
		case err != nil:
			l.problems.add(syntaxProblem(src, text.read, err))
			return
		}
		if isNull(n.Content[0]) {
			d.problem(&n, path{}, "the document is empty; write domain and rules, or leave out its ---")
			continue
		}
		d.document(n.Content[0], path{})
	}
}

// addRule takes in one rule, once it has its domain.
func (l *loader) addRule(r *Rule) {
	problem := func(message string) {
		l.problems.add(Problem{File: r.file, Line: r.line, Column: r.column, Rule: r.ID, Message: message})
	}
	name := ruleName{r.Domain, r.ID}
	switch other := l.byName[name]; {
	case r.ID == "" || r.Domain == "":
		return // reported as such
	case other != nil:
		problem(fmt.Sprintf("domain %s has a rule of this id already%s", quote(r.Domain), other.place()))
		return
	case len(l.rules) == maxRules:
		problem(fmt.Sprintf("is one more than the %d rules that a set may have", maxRules))
		return
	}
	l.byName[name] = r
	l.rules = append(l.rules, r)
}
