package rules

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// readFiles reads the files of a path, sorted by name. What cannot be read is a
// source with an error.
func readFiles(path string) []source {
	if path == "" {
		return nil
	}
	names, err := fileNames(path)
	if err != nil {
		return []source{{name: path, err: err}}
	}
	sources := make([]source, len(names))
	total := 0
	for i, name := range names {
		sources[i] = readFile(name)
		if total += len(sources[i].data); total > maxTotalSize {
			return []source{{name: path, err: fmt.Errorf("the files have more than %d bytes together", maxTotalSize)}}
		}
	}
	return sources
}

// fileNames returns the rules files of a path: itself, or those in it.
func fileNames(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path) // sorted
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if strings.HasPrefix(e.Name(), ".") || ext != ".yaml" && ext != ".yml" {
			continue
		}
		names = append(names, filepath.Join(path, e.Name()))
	}
	switch {
	case len(names) == 0:
		return nil, errors.New("the directory has no *.yaml or *.yml file; for no rules, put one there with {domain: default, rules: []}")
	case len(names) > maxFiles:
		return nil, fmt.Errorf("the directory has %d rules files, more than %d", len(names), maxFiles)
	}
	return names, nil
}

func readFile(name string) source {
	data, err := readRegular(name)
	return source{name: name, data: data, err: err}
}

// readRegular reads a regular file of bounded size. Opening anything else could
// block for ever.
func readRegular(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing to lose
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	return data, checkSize(len(data))
}

func checkSize(size int) error {
	if size > maxFileSize {
		return fmt.Errorf("has more than %d bytes; split it into several files of one directory", maxFileSize)
	}
	return nil
}

// trimPath leaves the path out of what the file system says: a Problem has it.
func trimPath(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return err.Error()
}
