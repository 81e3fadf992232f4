package docwriter

import (
	"fmt"
	"strings"
)

// style has colours that can be read on white and on black.
const style = `text { font: 13px system-ui, sans-serif; fill: #808790 }
.title { font-size: 15px; font-weight: 600 }
.grid { stroke: #808790; stroke-opacity: .25 }
`

// Drawing is an SVG.
type Drawing struct{ b strings.Builder }

// NewDrawing returns an empty drawing, in pixels. It has styles for the classes title and
// grid; more adds to them.
func NewDrawing(width, height int, more string) *Drawing {
	d := &Drawing{}
	d.Addf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", width, height, width, height)
	d.Addf("<style>\n%s%s</style>\n", style, more)
	return d
}

// Addf adds an element as it is.
func (d *Drawing) Addf(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

// Title describes the drawing, also for screen readers.
func (d *Drawing) Title(x, y float64, title string) {
	d.Addf("<title>%s</title>\n", title)
	d.Text(x, y, "start", "title", title)
}

// Line draws a line.
func (d *Drawing) Line(class string, x1, y1, x2, y2 float64) {
	d.Addf(`<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", class, x1, y1, x2, y2)
}

// Text writes s, whose start, middle or end is at x. The class may be empty.
func (d *Drawing) Text(x, y float64, anchor, class, s string) {
	d.Addf(`<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, s)
}

// Polyline connects points with straight lines.
func (d *Drawing) Polyline(class string, points [][2]float64) {
	d.Addf(`<polyline class="%s" points="`, class)
	for _, p := range points {
		d.Addf("%.1f,%.1f ", p[0], p[1])
	}
	d.Addf("\"/>\n")
}

// Bytes ends the drawing and returns the SVG.
func (d *Drawing) Bytes() []byte { return []byte(d.b.String() + "</svg>\n") }
