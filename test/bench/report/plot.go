package main

import (
	"fmt"
	"math"

	"github.com/weirlimit/weir/test/docs/docwriter"
)

// plots returns the SVGs by the names of their files.
func plots(s *store) map[string][]byte {
	return map[string][]byte{"nodes.svg": nodesPlot(s), "keys.svg": keysPlot(s)}
}

// nodeCounts are the sizes of the clusters that BenchmarkNodes measures.
var nodeCounts = []int{1, 2, 3, 4, 6, 8}

// nodesName is the benchmark of a path with so many nodes.
func nodesName(n int, path string) string { return fmt.Sprintf("BenchmarkNodes/nodes=%d/%s", n, path) }

func nodesPlot(s *store) []byte {
	c := chart{
		title: "processor time of all nodes per check, by the number of nodes",
		x:     axis{least: 1, most: 8, ticks: []float64{1, 2, 3, 4, 6, 8}, label: func(v float64) string { return fmt.Sprintf("%.0f", v) }},
		y:     axis{least: 0.5, most: 128, log: true, ticks: []float64{0.5, 1, 2, 4, 8, 16, 32, 64, 128}, label: func(v float64) string { return fmt.Sprintf("%g µs", v) }},
	}
	for _, path := range []struct{ name, class, label string }{{"unary", "first", "unary"}, {"batch100", "second", "batch of 100"}} {
		line := series{class: path.class, label: path.label}
		for _, n := range nodeCounts {
			if v, ok := s.part("nodes").Median(nodesName(n, path.name), cpuUnit); ok {
				line.points = append(line.points, [2]float64{float64(n), v})
			}
		}
		c.series = append(c.series, line)
	}
	return c.draw()
}

func keysPlot(s *store) []byte {
	most := float64(keyCounts[len(keyCounts)-1])
	c := chart{
		title: "resident memory per key, by the number of keys",
		x:     axis{least: 1e4, most: most, log: true, label: func(v float64) string { return thousands(int(v)) }},
		y:     axis{least: 0, most: 200, ticks: []float64{0, 50, 100, 150, 200}, label: func(v float64) string { return fmt.Sprintf("%g B", v) }},
	}
	weir := series{class: "first", label: "weir"}
	target := series{class: "target", label: "48 bytes", points: [][2]float64{{1e4, 48}, {most, 48}}}
	for _, n := range keyCounts {
		c.x.ticks = append(c.x.ticks, float64(n))
		if v, ok := s.part("engine").Median(engineName(n, 1), "rss_bytes_per_key"); ok {
			weir.points = append(weir.points, [2]float64{float64(n), v})
		}
	}
	c.series = []series{weir, target}
	return c.draw()
}

// chart draws lines between points.
type chart struct {
	title  string
	x, y   axis
	series []series
}

// axis is one of a chart. Values beyond it are drawn at its end.
type axis struct {
	least, most float64
	log         bool
	ticks       []float64
	label       func(float64) string
}

// place is where on the axis a value is, from 0 to 1.
func (a axis) place(v float64) float64 {
	v = min(max(v, a.least), a.most)
	if a.log {
		return math.Log(v/a.least) / math.Log(a.most/a.least)
	}
	return (v - a.least) / (a.most - a.least)
}

type series struct {
	class, label string
	points       [][2]float64
}

// Geometry of a chart, in pixels.
const (
	width, height = 760, 340
	left, right   = 68, 728
	top, bottom   = 44, 280
)

const style = `.first { stroke: #2f86d6; stroke-width: 2; fill: none; stroke-linejoin: round }
.second { stroke: #3aa657; stroke-width: 2; fill: none; stroke-linejoin: round }
.target { stroke: #e0653a; stroke-width: 1.5; stroke-dasharray: 7 4; fill: none }
`

func (c chart) draw() []byte {
	d := docwriter.NewDrawing(width, height, style)
	d.Title(left, 22, c.title)
	x := func(v float64) float64 { return left + (right-left)*c.x.place(v) }
	y := func(v float64) float64 { return bottom - (bottom-top)*c.y.place(v) }
	for _, v := range c.y.ticks {
		d.Line("grid", left, y(v), right, y(v))
		d.Text(left-8, y(v)+4, "end", "", c.y.label(v))
	}
	for _, v := range c.x.ticks {
		d.Line("grid", x(v), top, x(v), bottom)
		d.Text(x(v), bottom+18, "middle", "", c.x.label(v))
	}
	for i, s := range c.series {
		var points [][2]float64
		for _, p := range s.points {
			points = append(points, [2]float64{x(p[0]), y(p[1])})
		}
		d.Polyline(s.class, points)
		at := float64(left + 160*i)
		d.Line(s.class, at, height-14, at+24, height-14)
		d.Text(at+30, height-10, "start", "", s.label)
	}
	return d.Bytes()
}
