package rules

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// StandardInput is the path that stands for what a program is given to read.
const StandardInput = "-"

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
