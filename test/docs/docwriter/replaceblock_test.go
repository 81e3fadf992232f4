package docwriter

import (
	"strings"
	"testing"
)

func TestReplace(t *testing.T) {
	const begin, end = "<!-- written by go run ./x: a -->\n", "<!-- end -->\n"
	const other = "<!-- written by go run ./x: b -->\nkept\n" + end
	for _, tc := range []struct{ text, want, err string }{
		{"a\n" + begin + "old\n" + end + "z\n", "a\n" + begin + "new\n" + end + "z\n", ""},
		{begin + end, begin + "new\n" + end, ""},
		{other + begin + end + other, other + begin + "new\n" + end + other, ""},
		{"a\n" + end, "", "there is no line"},
		{end + begin, "", "there is no line"},
		{other, "", "there is no line"},
	} {
		got, err := Replace([]byte(tc.text), "go run ./x: a", []byte("new\n"))
		if string(got) != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%q: %q, %v", tc.text, got, err)
		}
	}
}
