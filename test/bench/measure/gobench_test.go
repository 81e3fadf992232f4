package measure

import (
	"reflect"
	"strings"
	"testing"
)

const output = `goos: linux
cpu: Some CPU
BenchmarkA/exact-10 	  300000	       598.8 ns/op	        73.26 rss-B/key	       0 allocs/op
BenchmarkA/exact-10-2 	  300000	       300 ns/op
BenchmarkA/exact-10-2 	  300000	       400 ns/op
BenchmarkA/exact-10-2 	  300000	       200 ns/op
PASS
ok  	example.com/a	33.933s
`

func TestParse(t *testing.T) {
	got, err := parse(strings.NewReader(output), []int{1, 2})
	want := Results{
		"BenchmarkA/exact-10@1": {"ns/op": {598.8}, "rss-B/key": {73.26}, "allocs/op": {0}},
		"BenchmarkA/exact-10@2": {"ns/op": {300, 400, 200}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for unit, want := range map[string]bool{"ns/op": true, "x": false} {
		median, ok := got.Median("BenchmarkA/exact-10@2", unit)
		if ok != want || want && median != 300 {
			t.Errorf("%s: median %v, %v", unit, median, ok)
		}
	}
	one, err := parse(strings.NewReader("BenchmarkA/exact-10 1 2 ns/op\n"), []int{2})
	if err != nil || one["BenchmarkA/exact-10"] == nil {
		t.Errorf("got %v, %v", one, err)
	}
	if _, err := parse(strings.NewReader("BenchmarkA 1 x ns/op\n"), []int{2}); err == nil {
		t.Error("a value that is none is no error")
	}
}
