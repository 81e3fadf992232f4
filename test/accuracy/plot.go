package main

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/test/docs/docwriter"
)

// All plots show five minutes of the same requests: one every two seconds, and
// from ten seconds before the edge of a minute on for 80 seconds five more per
// second, against 60 per minute.
const (
	second     = int64(time.Second)
	minute     = int64(time.Minute)
	plotLimit  = 60
	plotLength = 5 * minute
	floodBegin = 110 * second
	floodEnd   = 190 * second
)

var plotStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// plotted is what is drawn, one plot each.
var plotted = []algorithms.Limit{
	{Algorithm: algorithms.SlidingWindow, Limit: plotLimit, Window: minute},
	{Algorithm: algorithms.FixedWindow, Limit: plotLimit, Window: minute},
	{Algorithm: algorithms.TokenBucket, Limit: plotLimit, Window: minute},
	{Algorithm: algorithms.GCRA, Limit: plotLimit, Window: minute, Burst: 5},
	{Algorithm: algorithms.SlidingWindowBuckets, Limit: plotLimit, Window: minute, Buckets: 6},
	{Algorithm: algorithms.SlidingWindowLog, Limit: plotLimit, Window: minute},
	{Algorithm: algorithms.LeakyBucket, Limit: plotLimit, Window: minute, Burst: 20},
}

// burst plays the requests of the plots and returns when they came and when
// those that were allowed went, in nanoseconds since the start.
func burst(l algorithms.Limit) (came, went []int64) {
	var c counter
	for at := int64(0); at < plotLength; at += second / 10 {
		trickle := at%(2*second) == 0
		flood := at >= floodBegin && at < floodEnd && at%(second/5) == second/10
		if !trickle && !flood {
			continue
		}
		came = append(came, at)
		if d, _ := c.step(&l, plotStart+at); d.Allowed {
			went = append(went, d.At+d.Delay-plotStart)
		}
	}
	return came, went
}

// between counts the instants in (from, to].
func between(instants []int64, from, to int64) (n int) {
	for _, at := range instants {
		if at > from && at <= to {
			n++
		}
	}
	return n
}

// Geometry of a plot, in pixels, and the tops of its two scales.
const (
	plotWidth, plotHeight    = 760, 340
	left, right              = 58, 728
	upperTop, upperBottom    = 50, 200
	lowerTop, lowerBottom    = 222, 292
	mostInMinute, mostSecond = 130, 6
	barSeconds               = 2
)

// style is that of what only these plots have.
const style = `.edge { stroke: #808790; stroke-opacity: .55; stroke-dasharray: 1 4 }
.limit { stroke: #e0653a; stroke-width: 1.5; stroke-dasharray: 7 4 }
.minute { stroke: #2f86d6; stroke-width: 2; fill: none; stroke-linejoin: round }
.came { fill: #808790; fill-opacity: .35 }
.went { fill: #2f86d6 }
`

func x(at int64) float64 { return left + float64(right-left)*float64(at)/float64(plotLength) }

func upperY(n float64) float64 { return upperBottom - (upperBottom-upperTop)*n/mostInMinute }

func lowerY(perSecond float64) float64 {
	return lowerBottom - (lowerBottom-lowerTop)*perSecond/mostSecond
}

// plot draws an SVG: above, how many requests were allowed in the minute that ends at each instant; below,
// how many came, and how many were allowed, per second.
func plot(l algorithms.Limit) []byte {
	came, went := burst(l)
	drawing := docwriter.NewDrawing(plotWidth, plotHeight, style)
	peak := drawMinute(drawing, went)
	drawing.Title(left, 22, fmt.Sprintf("%s, %s: at most %d in any minute", describe(l), "limit 60 a minute", peak))
	drawAxes(drawing)
	drawBars(drawing, came, "came")
	drawBars(drawing, went, "went")
	drawLegend(drawing)
	return drawing.Bytes()
}

// describe names an algorithm and what of its parameters is not the default.
func describe(l algorithms.Limit) string {
	name := l.Algorithm.String()
	switch {
	case l.Algorithm.Queues():
		name += fmt.Sprintf(", queue of %d", l.Burst)
	case l.Burst != 0:
		name += fmt.Sprintf(", burst %d", l.Burst)
	case l.Buckets != 0:
		name += fmt.Sprintf(" (%d)", l.Buckets)
	}
	return name
}

// drawMinute draws the line above, and returns its highest point.
func drawMinute(d *docwriter.Drawing, went []int64) (peak int) {
	var points [][2]float64
	for at := int64(0); at <= plotLength; at += second / 2 {
		n := between(went, at-minute, at)
		peak = max(peak, n)
		points = append(points, [2]float64{x(at), upperY(float64(n))})
	}
	d.Polyline("minute", points)
	return peak
}

func drawBars(d *docwriter.Drawing, instants []int64, class string) {
	width := x(barSeconds*second) - x(0) - 1
	for at := int64(0); at < plotLength; at += barSeconds * second {
		if n := between(instants, at-1, at+barSeconds*second-1); n > 0 {
			top := lowerY(float64(n) / barSeconds)
			d.Addf(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n", class, x(at), top, width, lowerBottom-top)
		}
	}
}

func drawAxes(d *docwriter.Drawing) {
	for _, n := range []float64{0, 30, 60, 90, 120} {
		d.Line("grid", left, upperY(n), right, upperY(n))
		d.Text(left-8, upperY(n)+4, "end", "", fmt.Sprint(n))
	}
	for _, n := range []float64{0, 5} {
		d.Line("grid", left, lowerY(n), right, lowerY(n))
		d.Text(left-8, lowerY(n)+4, "end", "", fmt.Sprint(n))
	}
	for at := int64(0); at <= plotLength; at += minute {
		d.Line("edge", x(at), upperTop, x(at), lowerBottom)
		d.Text(x(at), lowerBottom+18, "middle", "", fmt.Sprintf("%d min", at/minute))
	}
	d.Line("limit", left, upperY(plotLimit), right, upperY(plotLimit))
}

func drawLegend(d *docwriter.Drawing) {
	const y = plotHeight - 10
	d.Line("minute", 58, y-4, 82, y-4)
	d.Text(88, y, "start", "", "allowed in the last minute")
	d.Line("limit", 290, y-4, 314, y-4)
	d.Text(320, y, "start", "", "limit")
	d.Addf(`<rect class="came" x="376" y="%d" width="12" height="12"/>`+"\n", y-11)
	d.Text(394, y, "start", "", "offered, per second")
	d.Addf(`<rect class="went" x="526" y="%d" width="12" height="12"/>`+"\n", y-11)
	d.Text(544, y, "start", "", "allowed, per second")
}
