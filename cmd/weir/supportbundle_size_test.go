package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
)

// An archive has a bound for each file, and one in all; a file that is cut says so.
func TestBundleIsBounded(t *testing.T) {
	b := &bundle{files: make(map[string][]byte)}
	const files, each, all = 5, 8 << 10, 24 << 10
	for i := range files {
		b.files[fmt.Sprintf("%d.txt", i)] = bytes.Repeat([]byte("line\n"), 2*each/len("line\n"))
	}
	var packed bytes.Buffer
	if err := b.write(&packed, "d", time.Now(), each, all); err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(unpacked)
	found, size := 0, 0
	for {
		_, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil || !bytes.HasSuffix(text, []byte(cutMark)) || len(text) > each+len(cutMark) {
			t.Errorf("file %d has %d bytes, %v", found, len(text), err)
		}
		found, size = found+1, size+len(text)
	}
	if found != files || size > all+files*len(cutMark) {
		t.Errorf("%d files with %d bytes, want %d with %d at most", found, size, files, all)
	}
}
