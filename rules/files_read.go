package rules

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// readFiles reads the files of a path, sorted by name, and returns the files that it passes
// over as well. What cannot be read is a source with an error.
func readFiles(path string, which Files) (sources []fileContent, unread []Problem) {
	if path == "" {
		return nil, nil
	}
	l := list(path, which)
	if l.err != nil {
		return []fileContent{{name: path, err: l.err}}, l.unread
	}
	sources = make([]fileContent, len(l.names))
	total := 0
	for i, name := range l.names {
		sources[i] = readFile(name)
		if total += len(sources[i].data); total > maxTotalSize {
			return []fileContent{{name: path, err: fmt.Errorf("the files have more than %d bytes together", maxTotalSize)}}, l.unread
		}
	}
	return sources, l.unread
}

func readFile(name string) fileContent {
	data, err := readRegular(name)
	return fileContent{name: name, data: data, err: err}
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
