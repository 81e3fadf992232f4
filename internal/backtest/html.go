package backtest

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"
)

//go:embed report.html
var reportText string

//go:embed report.css
var reportStyle string

// reportPage has a report as one page. It has no script and makes no request: its policy forbids both.
var reportPage = template.Must(template.New("report").Funcs(template.FuncMap{
	"instant": func(s int64) string { return time.Unix(s, 0).UTC().Format("2006-01-02 15:04:05Z") },
	"window":  func(ns int64) string { return WindowText(time.Duration(ns)) },
	"percent": percent,
	"over":    plotOver,
	"rates":   plotRates,
	"style":   func() template.CSS { return template.CSS(reportStyle) },
	"policy":  policy,
}).Parse(reportText))

// policy is the Content-Security-Policy of the page: nothing but its own style.
func policy() string {
	sum := sha256.Sum256([]byte(reportStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}

func percent(n, of int64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(of))
}

// WriteHTML writes the result as one page that needs nothing else. Texts of the log are escaped.
func (r *Result) WriteHTML(w io.Writer) error { return reportPage.Execute(w, r) }

// Size of a plot, in the units of its view box.
const (
	plotWidth  = 720
	plotHeight = 200
	plotLeft   = 60
	plotBottom = 30
)

// plot is a picture of columns. It is made of numbers only.
type plot struct {
	strings.Builder

	highest float64
	columns int
}

func (p *plot) begin(title string, highest int64, columns int) {
	step := gridStep(highest)
	lines := (max(1, highest)-1)/step + 1
	p.highest, p.columns = float64(lines)*float64(step), max(1, columns)
	fmt.Fprintf(p, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotLeft+plotWidth+10, plotHeight+plotBottom+10, template.HTMLEscapeString(title))
	for i := range lines + 1 {
		y := 10 + plotHeight - plotHeight*i/lines
		fmt.Fprintf(p, `<line class="grid" x1="%d" x2="%d" y1="%d" y2="%d"/><text class="left" x="%d" y="%d">%s</text>`,
			plotLeft, plotLeft+plotWidth, y, y, plotLeft-6, y+4, short(float64(i)*float64(step)))
	}
}

// gridStep returns 1, 2 or 5 times a power of ten, so that at most five steps lead to the highest value.
func gridStep(highest int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, step := range []int64{unit, 2 * unit, 5 * unit} {
			if (highest-1)/5 < step { // at the latest at 2e18
				return step
			}
		}
	}
}

// short is a number of at most four characters or so.
func short(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.3gG", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.3gk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}

// column draws a value from the bottom.
func (p *plot) column(i int, v int64, class, title string) {
	if v <= 0 {
		return
	}
	width := float64(plotWidth) / float64(p.columns)
	height := math.Max(1, plotHeight*float64(v)/p.highest)
	fmt.Fprintf(p, `<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f"><title>%s</title></rect>`,
		class, plotLeft+width*float64(i), 10+plotHeight-height, math.Max(0.5, width-0.5), height, template.HTMLEscapeString(title))
}

// label writes under a place between 0 and the number of columns.
func (p *plot) label(at float64, class, text string) {
	fmt.Fprintf(p, `<text class="%s" x="%.2f" y="%d">%s</text>`, class, plotLeft+plotWidth*at/float64(p.columns), plotHeight+plotBottom, template.HTMLEscapeString(text))
}

// upright draws a line over the whole height.
func (p *plot) upright(at float64) {
	x := plotLeft + plotWidth*at/float64(p.columns)
	fmt.Fprintf(p, `<line class="limit" x1="%.2f" x2="%.2f" y1="10" y2="%d"/>`, x, x, 10+plotHeight)
}

func (p *plot) end() template.HTML {
	p.WriteString("</svg>")
	return template.HTML(p.String())
}

// plotOver draws checks and denials over time.
func plotOver(r *Result) template.HTML {
	var p plot
	highest := int64(0)
	for _, m := range r.Over {
		highest = max(highest, m.Checks)
	}
	p.begin("checks and denials over time", highest, len(r.Over))
	for i, m := range r.Over {
		at := time.Unix(m.At, 0).UTC().Format("2006-01-02 15:04:05Z")
		p.column(i, m.Checks, "checks", fmt.Sprintf("%s: %d checks", at, m.Checks))
		p.column(i, m.Denied, "denied", fmt.Sprintf("%s: %d of %d denied", at, m.Denied, m.Checks))
		if m.Against > 0 {
			p.against(i, m)
		}
	}
	if n := len(r.Over); n > 0 {
		p.label(0, "start", time.Unix(r.Over[0].At, 0).UTC().Format("2006-01-02 15:04:05Z"))
		p.label(float64(n), "end", time.Unix(r.Over[n-1].At+r.Step, 0).UTC().Format("2006-01-02 15:04:05Z"))
	}
	return p.end()
}

// against marks how much the other rules deny.
func (p *plot) against(i int, m Moment) {
	width := float64(plotWidth) / float64(p.columns)
	x, y := plotLeft+width*float64(i), 10+plotHeight-plotHeight*float64(m.Against)/p.highest
	fmt.Fprintf(p, `<line class="against" x1="%.2f" x2="%.2f" y1="%.2f" y2="%.2f"><title>the other rules deny %d</title></line>`, x, x+width, y, y, m.Against)
}

// timesText is a multiple of the limit that is a power of two.
func timesText(times float64) string {
	switch {
	case times < 1:
		return fmt.Sprintf("1/%.0f", 1/times)
	case times == 1:
		return "limit"
	}
	return fmt.Sprintf("%.0f times", times)
}

// plotRates draws how many windows of keys ask for which share of the limit.
func plotRates(l LimitResult) template.HTML {
	var p plot
	highest := int64(0)
	for _, b := range l.Bins {
		highest = max(highest, b.Windows)
	}
	p.begin("windows of keys by tokens asked for, as a share of the limit", highest, len(l.Bins))
	from := 0.0
	for i, b := range l.Bins {
		class := "checks"
		if i > binAtLimit {
			class = "denied"
		}
		p.column(i, b.Windows, class, fmt.Sprintf("%d windows above %.3g and up to %.3g times the limit", b.Windows, from, b.UpTo))
		from = b.UpTo
	}
	for i := 7; i < len(l.Bins)-1; i += 2 * binsPerTwo {
		p.label(float64(i+1), "middle", timesText(binEnd(i)))
	}
	p.label(float64(len(l.Bins)), "end", "more")
	p.upright(binAtLimit + 1)
	return p.end()
}
