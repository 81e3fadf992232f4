package docwriter

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

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
