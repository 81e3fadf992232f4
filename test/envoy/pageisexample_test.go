package envoy

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// What the page tells people to paste are the files that the tests run, byte by byte.
func TestPageIsTheExample(t *testing.T) {
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	blocks := yamlBlock.FindAllStringSubmatch(read("../../docs/envoy.md"), -1)
	names := []string{"rules.yaml", "envoy.yaml"}
	if len(blocks) != len(names)+1 { // and the one that tls_test.go pastes
		t.Fatalf("the page has %d blocks of YAML, want those of %q and one on TLS", len(blocks), names)
	}
	for i, name := range names {
		if path := filepath.Join(examples, name); blocks[i][1] != read(path) {
			t.Errorf("block %d of the page is not %s; copy that into the page:\n%s", i+1, path, blocks[i][1])
		}
	}
}
