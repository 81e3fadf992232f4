package rules

// LoadDocuments reads what Load does, and returns it as documents: one per domain,
// those without rules included, which a Set does not know. The warnings are those of
// Set.Warnings.
func (how Lyft) LoadDocuments(path string) ([]Document, []Problem, error) {
	return loadDocuments(readFiles(path), how)
}

// ParseDocuments reads what Parse does, and returns it as LoadDocuments does.
func (how Lyft) ParseDocuments(name string, data []byte) ([]Document, []Problem, error) {
	return loadDocuments([]source{{name: name, data: data, err: checkSize(len(data))}}, how)
}

func loadDocuments(sources []source, how Lyft) ([]Document, []Problem, error) {
	l := newLoader(how)
	l.files(sources)
	set, err := l.set()
	if err != nil {
		return nil, nil, err
	}
	var docs []Document
	for _, domain := range l.domains {
		docs = append(docs, Document{Domain: domain})
	}
	return group(append(docs, set.Documents()...)).documents(), set.Warnings(), nil
}
