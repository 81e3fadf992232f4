package rules

import (
	"github.com/weirlimit/weir/rules/internal/problem"
)

// Compile makes a Set of documents, by the same rules as Parse. name stands for
// the file in messages, which have no line numbers.
func Compile(name string, docs []Document) (*Set, error) { return Options{}.Compile(name, docs) }

// Compile is Compile for documents that are read in another way.
func (how Options) Compile(name string, docs []Document) (*Set, error) {
	return how.compile(name, docs)
}

func (how Options) compile(name string, docs []Document) (*Set, error) {
	return newLoader(how).compile(name, docs)
}

// compileStored is compile for rules that stand in etcd already. What a later version
// finds pointless in them it only warns of.
func (how Options) compileStored(name string, docs []Document) (*Set, error) {
	l := newLoader(how)
	l.stored = true
	return l.compile(name, docs)
}

func (l *loader) compile(name string, docs []Document) (*Set, error) {
	d := &decoder{loader: l, file: name}
	for i, doc := range docs {
		at := problem.Path{}
		if len(docs) > 1 {
			at = at.Key("documents").Index(i)
		}
		d.document(doc.node(), at)
	}
	return l.set()
}
