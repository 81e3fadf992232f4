package asciijson

import (
	"encoding/json"
	"strings"
	"testing"
)

// Any text comes back from its JSON, which is printable ASCII.
func FuzzAppendString(f *testing.F) {
	f.Add("x\n{\"a\":1}\r\x1b[2J\x7f\u0085\u2028\u202e\U0001F600\xff\x00\\")
	f.Fuzz(func(t *testing.T, s string) {
		text := AppendString(nil, s)
		encoded, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range [][]byte{text, ASCII(nil, encoded)} {
			for _, b := range line {
				if b < ' ' || b > '~' {
					t.Fatalf("byte %#x in %q", b, line)
				}
			}
			var got string
			if err := json.Unmarshal(line, &got); err != nil || got != strings.ToValidUTF8(escapeEach(s), "") {
				t.Fatalf("%q became %s: %v", s, line, err)
			}
		}
	})
}

// escapeEach has one U+FFFD per byte that is not UTF-8, as JSON has it.
func escapeEach(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}
