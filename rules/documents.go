package rules

// LoadDocuments reads what Load does, and returns it as documents: one per domain,
// those without rules included, which a Set does not know.
func LoadDocuments(path string) ([]Document, error) { return loadDocuments(readFiles(path)) }

// ParseDocuments reads what Parse does, and returns it as LoadDocuments does.
func ParseDocuments(name string, data []byte) ([]Document, error) {
	return loadDocuments([]source{{name: name, data: data, err: checkSize(len(data))}})
}

func loadDocuments(sources []source) ([]Document, error) {
	l := newLoader()
	l.files(sources)
	set, err := l.set()
	if err != nil {
		return nil, err
	}
	var docs []Document
	for _, domain := range l.domains {
		docs = append(docs, Document{Domain: domain})
	}
	return group(append(docs, set.Documents()...)).documents(), nil
}
