package envoy

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// What the page tells people to paste is part of what is tested, but for how far it is
// indented.
func TestPageIsTheExample(t *testing.T) {
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	unindent := func(text string) string {
		var lines []string
		for line := range strings.Lines(text) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return strings.Trim(strings.Join(lines, "\n"), "\n")
	}
	tested := unindent(read(examples+"envoy.yaml")) + "\n" + unindent(read(examples+"rules.yaml"))
	blocks := yamlBlock.FindAllStringSubmatch(read("../../docs/envoy.md"), -1)
	if len(blocks) != 4 {
		t.Errorf("%d blocks, want 4", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(tested, unindent(b[1])) {
			t.Errorf("not part of the examples:\n%s", b[1])
		}
	}
}
