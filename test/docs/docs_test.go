package docs

import (
	"encoding/xml"
	"errors"
	"io"
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

func TestDrawing(t *testing.T) {
	d := NewDrawing(100, 50, ".x { fill: red }\n")
	d.Title(1, 2, "what")
	d.Line("grid", 1, 2, 3, 4)
	d.Polyline("x", [][2]float64{{1, 2}, {3, 4.56}})
	svg := string(d.Bytes())
	for _, want := range []string{`viewBox="0 0 100 50"`, ".x { fill: red }", "<title>what</title>", `y2="4.0"`, `points="1.0,2.0 3.0,4.6 "`} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
	for r := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := r.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
}
